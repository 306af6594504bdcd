"""Items with known answers, for training and to check attention. All are fair: whoever looks gets them right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from stillme.core import images
from stillme.core.types import Portrait
from stillme.editors.regions import regions_of
from stillme.study.candidates import shuffled
from stillme.study.items import (
    FIRST_PERSON,
    NEITHER_PERSON,
    ROLE_AXIS,
    SECOND_PERSON,
    BlindedPictures,
    Expected,
    Item,
    Kind,
    Output,
    question_about,
)

SHIFT = 16.0
"""How much lighter or darker the skin is made, in L*: about two steps of the Monk scale, plain to see."""
INSTRUCTION = "Dress the person in a dark suit."
ATTENTION = "This is an attention check. Whatever the pictures show, please answer 2 to every question."
ATTENTION_IN_PAIRS = "This is an attention check. Whatever the pictures show, please answer “neither of the two”."
OCCUPATIONS = ("baker", "tailor")
"""The target of a known pair, and the other person."""

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

    def named(self, kind: Kind, name: str, one: Portrait, other: Portrait, *, turned: bool) -> Item:
        """Both people side by side, each above a name plate; `turned` makes the second one the target."""
        pictures = [images.read_rgb(portrait.image.path) for portrait in (one, other)]
        plates = OCCUPATIONS[::-1] if turned else OCCUPATIONS
        scene = self.pictures.add(_side_by_side(pictures, plates))
        right = SECOND_PERSON if turned else FIRST_PERSON
        return Item(
            id=name,
            kind=kind,
            prompt=question_about(OCCUPATIONS[0]),
            questions=self.questions,
            source=self.pictures.add(pictures[0]),
            second=self.pictures.add(pictures[1]),
            outputs=(Output(file=scene, expected={ROLE_AXIS: (right, right)}),),
            strata={"portrait": one.id, "second": other.id},
        )

    def attention(self, name: str, like: Item) -> Item:
        """An item that looks like any other until one reads its instruction."""
        # "Neither" stays the same when the portraits change places.
        answer = NEITHER_PERSON if like.second else 2
        right: Expected = dict.fromkeys(like.questions, (answer, answer))
        return Item(
            id=name,
            kind="attention",
            prompt=ATTENTION_IN_PAIRS if like.second else ATTENTION,
            questions=like.questions,
            source=like.source,
            second=like.second,
            outputs=tuple(Output(file=output.file, expected=right) for output in like.outputs),
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


def _side_by_side(pictures: Sequence[NDArray[np.uint8]], plates: Sequence[str]) -> NDArray[np.uint8]:
    """The pictures in squares beside each other, with a word under each."""
    side, plate = 512, 96
    canvas = Image.new("RGB", (len(pictures) * side, side + plate), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(size=64)
    for place, (picture, word) in enumerate(zip(pictures, plates, strict=True)):
        canvas.paste(ImageOps.pad(Image.fromarray(picture), (side, side), color="grey"), (place * side, 0))
        draw.text((place * side + side / 2, side + plate / 2), word, fill="black", font=font, anchor="mm")
    return np.asarray(canvas)


def is_right(expected: Expected, question: str, value: int | None) -> bool | None:
    """Whether an answer is among the right ones; None where none is known."""
    if question not in expected or value is None:
        return None
    low, high = expected[question]
    return low <= value <= high


def choose_portraits(
    portraits: Sequence[Portrait], count: int, stream: np.random.Generator, shown: int = 1
) -> list[tuple[Portrait, ...]]:
    """For each check the portraits that it shows, repeated only if there are too few."""
    order = shuffled(portraits, stream)
    return [tuple(order[(shown * check + place) % len(order)] for place in range(shown)) for check in range(count)]
