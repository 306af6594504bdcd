"""Items with known answers, for training and to check attention. All are fair: whoever looks gets them right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme import images
from stillme.editors.regions import regions_of
from stillme.study.blinding import BlindedPictures
from stillme.study.items import Expected, Item, Kind, Output
from stillme.study.sampling import shuffled
from stillme.types import Portrait

SHIFT = 16.0
"""How much lighter or darker the skin is made, in L*: about two steps of the Monk scale, plain to see."""
INSTRUCTION = "Dress the person in a dark suit."
ATTENTION = "This is an attention check. Whatever the pictures show, please answer 2 to every question."

_SAME: Expected = {
    "edit_success": (1, 1),
    "skin_tone": (3, 3),
    "race_change": (1, 2),
    "gender_change": (1, 2),
    "age_change": (3, 3),
}
"""Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMaker:
    """Makes check items out of the study's own portraits."""

    pictures: BlindedPictures
    questions: tuple[str, ...]
    """Those asked of every item."""
    sides: int

    def known(self, kind: Kind, name: str, portrait: Portrait, *, turned: bool) -> Item:
        """One output unchanged, the other with a clearly different skin tone; `turned` puts that one first."""
        rgb = images.read_rgb(portrait.image.path)
        source = self.pictures.add(rgb)
        unchanged = Output(file=source, expected=self._asked(_SAME))
        outputs = [unchanged, self._other_skin(portrait, rgb, source)]
        if turned:
            outputs.reverse()
        return Item(
            id=name,
            kind=kind,
            prompt=INSTRUCTION,
            questions=self.questions,
            source=source,
            outputs=tuple(outputs[: self.sides]),
            strata={"portrait": portrait.id},
        )

    def attention(self, name: str, like: Item) -> Item:
        """An item that looks like any other until one reads its instruction."""
        right: Expected = dict.fromkeys(like.questions, (2, 2))
        outputs = tuple(Output(file=output.file, expected=right) for output in like.outputs)
        return Item(
            id=name, kind="attention", prompt=ATTENTION, questions=like.questions, source=like.source, outputs=outputs
        )

    def _other_skin(self, portrait: Portrait, rgb: NDArray[np.uint8], source: str) -> Output:
        regions = regions_of(portrait.image)
        if regions is None:
            # No face to paint; an unchanged copy has a known answer too.
            return Output(file=source, expected=self._asked(_SAME))
        # Away from the nearer end of the scale, or there would be little to see.
        shift = -SHIFT if regions.tone[0] > 55 else SHIFT
        right = {**_SAME, "skin_tone": (1, 2) if shift < 0 else (4, 5), "edit_success": (1, 2)}
        # A much different skin tone may look like another race; saying so is not wrong.
        right["race_change"] = (1, 5)
        return Output(file=self.pictures.add(regions.painted(skin_shift=shift)), expected=self._asked(right))

    def _asked(self, expected: Expected) -> Expected:
        return {name: expected[name] for name in self.questions if name in expected}


def is_right(expected: Expected, question: str, value: int | None) -> bool | None:
    """Whether an answer is among the right ones; None where none is known."""
    if question not in expected or value is None:
        return None
    low, high = expected[question]
    return low <= value <= high


def choose_portraits(portraits: Sequence[Portrait], count: int, stream: np.random.Generator) -> list[Portrait]:
    """Portraits for checks, repeated only if there are too few."""
    order = shuffled(portraits, stream)
    return [order[index % len(order)] for index in range(count)]
