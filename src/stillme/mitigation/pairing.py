"""Whether two requests differ in nothing but the arm, which is what a comparison of arms rests on.

In the authors' code the arms ran with other steps and seeds, so that their difference is not the feature prompt's
alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from stillme.errors import StillmeError
from stillme.types import Request


class NotPaired(StillmeError):
    """Two requests that must not be compared as arms of one treatment."""


def differences(one: Request, other: Request) -> Iterator[str]:
    """Each thing beyond arm and instruction in which two requests differ, as `seed: 1 and 2`."""
    if one.arm == other.arm:
        yield f"the arm is {one.arm} in both"
    people = [[(who.id, who.image.sha256) for who in request.portraits] for request in (one, other)]
    if people[0] != people[1]:
        ids = [" + ".join(who.id for who in request.portraits) for request in (one, other)]
        yield f"portrait: {ids[0]} and {ids[1]}" if ids[0] != ids[1] else f"the picture of portrait {ids[0]}"
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
    if found := list(differences(one, other)):
        raise NotPaired(
            f"{_name(one)} and {_name(other)} differ in more than the arm ({'; '.join(found)}), so their difference "
            "would not be the arm's. Run both arms in one audit."
        )


def _editor_differences(one: Request, other: Request) -> Iterator[str]:
    a, b = one.editor, other.editor
    if a.use != b.use:
        yield f"editor: {a.use} and {b.use}"
        return
    if a.version != b.version:
        yield f"version of {a.use}: {a.version} and {b.version}"
    for name in sorted({*a.parameters, *b.parameters}):
        left, right = a.parameters.get(name), b.parameters.get(name)
        if left != right:
            yield f"{name}: {left!r} and {right!r}"


def _name(request: Request) -> str:
    return f"{' + '.join(who.id for who in request.portraits)} × {request.prompt.id} ({request.arm})"
