"""Matrix products on one thread.

BLAS splits a product over threads from a certain size on. The products here are thin, so threads mostly wait for one
another, and they wait by spinning: on a busy machine that took five times the processor time of the work itself.
"""

from __future__ import annotations

import numpy as np

from stillme.estimates.quantities import Floats

_SMALL = 250_000
"""Multiplications up to which OpenBLAS stays on one thread."""
_COLUMNS = 32


def product(one: Floats, other: Floats, out: Floats | None = None) -> Floats:
    """`one @ other`, in blocks that are too small to be split; into `out`, if it is given."""
    width = min(_COLUMNS, max(1, other.shape[1]))
    height = max(1, _SMALL // max(1, one.shape[1] * width))
    result = np.empty((len(one), other.shape[1])) if out is None else out
    for left in range(0, other.shape[1], width):
        block = np.ascontiguousarray(other[:, left : left + width])
        for top in range(0, len(one), height):
            np.matmul(one[top : top + height], block, out=result[top : top + height, left : left + width])
    return result


def products(ones: Floats, others: Floats) -> Floats:
    """`ones @ others`, matrix by matrix."""
    if ones.shape[1] * ones.shape[2] * others.shape[2] <= _SMALL:
        return np.matmul(ones, others)
    return np.stack([product(one, other) for one, other in zip(ones, others, strict=True)])
