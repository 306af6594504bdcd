from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stillme.estimates import Edits, Scores

from .worlds import people, rows


@pytest.fixture(scope="session")
def simulate() -> Callable[..., tuple[Edits, list[Scores]]]:
    """Portraits that differ by a random effect, in equal groups, with soft erasure as the outcome."""

    def build(
        seed: int,
        *,
        levels: int = 4,
        per_level: int = 12,
        prompts: int = 10,
        portrait_sd: float = 0.75,
        planted: float = 0.0,
    ) -> tuple[Edits, list[Scores]]:
        stream = np.random.default_rng(seed)
        effect = -1.0 + stream.normal(0, portrait_sd, levels * per_level)
        effect[:per_level] += planted
        erased = stream.random((len(effect), prompts)) < 1 / (1 + np.exp(-effect))[:, None]
        values = np.where(erased, 1.0, 5.0)
        edits, scores = rows(people("ABCDEFG"[:levels], per_level), values, axis="edit_success")
        return edits, [scores]

    return build
