"""Which pairs of known truth a judge is shown: changes that calibration uses, mixed and balanced over skin tones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from stillme.core.rubric.limits import AxisLimits, Truth
from stillme.core.rubric.limits import load as load_limits
from stillme.core.types import Portrait, digest
from stillme.editors import known, rendered
from stillme.portraits import load as load_folder
from stillme.portraits.synthetic import embedded_renders, portraits

NOT_SCORED = frozenset({"edit_success"})
"""The instruction comes from the audit: whether an unchanged picture fulfils it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPair:
    """A portrait, and a change of known kind and size."""

    subject: Portrait
    tone: str
    kind: str
    amount: float
    render: Path | None = None
    """The changed picture; None where it is computed from the portrait."""

    @property
    def name(self) -> str:
        """As in `skin+8` or `jpeg`."""
        return f"{self.kind}{self.amount:+g}" if self.amount else self.kind

    def truths(self, axes: Sequence[str]) -> dict[str, Truth]:
        """What is known, by axis."""
        return {
            axis: truth
            for axis, limits in scored(axes).items()
            if (truth := limits.truth(self.kind, self.amount)) is not None
        }


def scored(axes: Sequence[str]) -> Mapping[str, AxisLimits]:
    """The axes whose answers can be compared with the truth."""
    limits = load_limits().axes
    return {axis: limits[axis] for axis in axes if axis in limits and axis not in NOT_SCORED}


def drawn(axes: Sequence[str], seed: int, judge: str) -> Iterator[KnownPair]:
    """The pairs in their order, without end: any three in a row have three skin tones, and all families recur."""
    pools = _pools(tuple(sorted(scored(axes))))
    tones = sorted({tone for tone, _ in pools})
    families = sorted({family for _, family in pools})
    block = 0
    while pools:
        rng = generator(seed, judge, f"pairs {block}")
        orders = {tone: rng.permutation(families) for tone in tones}
        for place in range(len(families)):
            for tone in map(str, rng.permutation(tones)):
                pool = pools[tone, str(orders[tone][place])]
                yield pool[int(rng.integers(len(pool)))]
        block += 1


def generator(seed: int, judge: str, purpose: str) -> np.random.Generator:
    """Random numbers that another seed, judge or purpose does not share."""
    return np.random.default_rng(int(digest([seed, judge, purpose]), 16))


@cache
def _pools(axes: tuple[str, ...]) -> Mapping[tuple[str, str], Sequence[KnownPair]]:
    """By skin tone and family: the pairs of which something is known on these axes."""
    pools: dict[tuple[str, str], list[KnownPair]] = {}
    for pair in _shipped():
        truths = pair.truths(axes)
        # A change too small to be asked for, or one that no axis is about, says nothing.
        if family := _family(pair) if truths else "":
            pools.setdefault((pair.tone, family), []).append(pair)
    return pools


def _family(pair: KnownPair) -> str:
    match pair.kind:
        case "jpeg" | "resized":
            return "unchanged"
        case "exposure" | "light_colour":
            return "light"
        case "background" | "clothes":
            return "surroundings"
        case "skin" | "age":
            return f"{pair.kind} {'up' if pair.amount > 0 else 'down'}"
        case "gender" | "features" | "swapped":
            return pair.kind
        case _:
            # The identical picture would be recognised by its bytes, a black one at a glance.
            return ""


@cache
def _shipped() -> Sequence[KnownPair]:
    pairs = [
        KnownPair(subject=portrait, tone=_tone(portrait), kind=kind, amount=float(prompt.id.removeprefix(kind) or 0))
        for portrait in portraits()
        for prompt in known.prompts()
        if (kind := prompt.subcategory) in ("jpeg", "resized", "exposure", "skin")
    ]
    folder = embedded_renders()[0]
    subjects = {portrait.id: portrait for portrait in load_folder(folder)}
    pairs += [
        KnownPair(
            subject=subjects[change.subject],
            tone=_tone(subjects[change.subject]),
            kind=change.kind,
            amount=change.amount,
            render=folder / change.file,
        )
        for change in rendered.changes(folder)
    ]
    return pairs


def _tone(portrait: Portrait) -> str:
    return load_limits().group_of(float(portrait.attributes["skin_l"]))
