"""Check that two requests differ only in the arm, so that they can be compared.

In the authors' code the arms ran with different steps and seeds, so the difference between them is not due to the
feature prompt alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from stillme.core.errors import StillmeError
from stillme.core.types import Request


class NotPaired(StillmeError):
    """Two requests that must not be compared, because more than the arm differs."""


def differences(one: Request, other: Request) -> Iterator[str]:
    """Every difference between two requests beyond arm and instruction, as `seed: 1 and 2`."""
    if one.arm == other.arm:
        yield f"the arm is {one.arm} in both"
    first, second = (
        [(portrait.id, portrait.image.sha256) for portrait in request.portraits] for request in (one, other)
    )
    if first != second:
        ids = _ids(one), _ids(other)
        yield f"portrait: {ids[0]} and {ids[1]}" if ids[0] != ids[1] else f"the image of portrait {ids[0]}"
    if (one.prompt.id, one.prompt.text) != (other.prompt.id, other.prompt.text):
        same = one.prompt.id == other.prompt.id
        yield f"the text of prompt {one.prompt.id}" if same else f"prompt: {one.prompt.id} and {other.prompt.id}"
    yield from _editor_differences(one, other)
    if one.seed != other.seed:
        yield f"seed: {one.seed} and {other.seed}"
    if one.attributes_matter and [dict(p.attributes) for p in one.portraits] != [
        dict(p.attributes) for p in other.portraits
    ]:
        yield "the labels that a known-answer editor reads"


def require_paired(one: Request, other: Request) -> None:
    """Raise `NotPaired` unless the requests differ in the arm alone."""
    if more := list(differences(one, other)):
        raise NotPaired(
            f"{_name(one)} and {_name(other)} differ in more than the arm ({'; '.join(more)}), so they cannot be "
            "compared. Run both arms in one audit."
        )


def _editor_differences(one: Request, other: Request) -> Iterator[str]:
    first, second = one.editor, other.editor
    if first.use != second.use:
        yield f"editor: {first.use} and {second.use}"
        return
    if first.version != second.version:
        yield f"version of {first.use}: {first.version} and {second.version}"
    for name in sorted({*first.parameters, *second.parameters}):
        values = first.parameters.get(name), second.parameters.get(name)
        if values[0] != values[1]:
            yield f"{name}: {values[0]!r} and {values[1]!r}"


def _name(request: Request) -> str:
    return f"{_ids(request)} × {request.prompt.id} ({request.arm})"


def _ids(request: Request) -> str:
    return " + ".join(portrait.id for portrait in request.portraits)
