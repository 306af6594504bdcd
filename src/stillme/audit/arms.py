"""Check that the arms of one cell differ in nothing else: paired comparisons depend on it."""

from __future__ import annotations

from stillme.core.types import Arm, Request
from stillme.mitigation import require_paired


class PairedArms:
    """The requests of one editor as they come, portrait by portrait."""

    def __init__(self) -> None:
        self._first: dict[tuple[tuple[str, ...], str, int], Request] = {}
        self._portrait = ""

    def check(self, request: Request) -> None:
        """Raise `NotPaired` if a request differs from another arm's of its cell in more than the arm."""
        if request.arm is Arm.NOOP:
            return  # has an instruction of its own, once per portrait
        # Requests come portrait by portrait, so no more than one portrait's are kept.
        if request.portraits[0].id != self._portrait:
            self._portrait = request.portraits[0].id
            self._first.clear()
        people = tuple(portrait.id for portrait in request.portraits)
        first = self._first.setdefault((people, request.prompt.id, request.seed), request)
        if first.arm is not request.arm:
            require_paired(first, request)
