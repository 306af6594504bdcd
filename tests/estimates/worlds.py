"""Rows with a known truth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Interval, NotEstimable, Portrait, Prompt
from stillme.estimates import Edits, RatingState, Scores
from tests.records import edits_of, portrait


def people(levels: str, per_level: int, *, blocks: bool = False) -> tuple[Portrait, ...]:
    """Equal groups of a factor `race`, level by level; with blocks, the n-th of every level share one."""
    return tuple(
        portrait(
            f"{level}{number:04d}", block=f"block {number:04d}" if blocks else "", race=level, gender="fm"[number % 2]
        )
        for level in levels
        for number in range(per_level)
    )


def crossed_people() -> tuple[Portrait, ...]:
    """Seven races × two genders × six ages, one of each; the twelve of a race are twelve identities."""
    return tuple(
        portrait(f"{race}{gender}{age}", block=f"{gender}{age}", race=race, gender=gender, age=age)
        for race in "ABCDEFG"
        for gender in "fm"
        for age in "123456"
    )


def known(row: object) -> Interval:
    """The interval of a row, or the outcome itself, which must be one."""
    outcome = getattr(row, "outcome", row)
    assert isinstance(outcome, Interval), outcome
    return outcome


def has_numbers_or_reasons(records: Iterable[object]) -> None:
    """Every outcome in them is a finite interval around its value, or says why there is none."""
    for record in records:
        for outcome in _outcomes(record):
            if isinstance(outcome, NotEstimable):
                assert outcome.reason
            else:
                assert all(math.isfinite(number) for number in (outcome.low, outcome.value, outcome.high)), record
                assert outcome.low - 1e-9 <= outcome.value <= outcome.high + 1e-9, record


def _outcomes(record: object) -> Iterator[Interval | NotEstimable]:
    if isinstance(record, Interval | NotEstimable):
        yield record
    elif is_dataclass(record):
        for field in fields(record):
            yield from _outcomes(getattr(record, field.name))


def rows(
    portraits: Sequence[Portrait],
    values: NDArray[np.float64],
    *,
    axis: str = "race_change",
    arms: Sequence[str] = ("baseline",),
    editors: Sequence[str] = ("editor",),
) -> tuple[Edits, Scores]:
    """Columns from values by portrait, prompt, arm, seed and editor; missing axes have one entry, NaN is not judged."""
    full = values.reshape(values.shape + (1,) * (5 - values.ndim))
    places = np.indices(full.shape).reshape(5, -1).astype(np.int32)
    portrait, prompt, arm, seed, editor = places
    value = full.ravel().astype(np.float64)
    prompts = tuple(
        Prompt(id=f"P{n:03d}", text="Do.", category="cd"[n % 2], subcategory=f"s{n % 3}") for n in range(full.shape[1])
    )
    named = {"editors": tuple(editors), "arms": tuple(arms)}
    edits = edits_of(portraits, prompts, portrait, prompt, editor=editor, arm=arm, seed=seed, **named)
    state = np.where(np.isnan(value), RatingState.MISSING, RatingState.RATED).astype(np.int32)
    return edits, Scores(judge="judge", axis=axis, value=value, state=state)


def shuffled(edits: Edits, scores: Sequence[Scores], seed: int) -> tuple[Edits, list[Scores]]:
    """The same rows and portraits in another order."""
    stream = np.random.default_rng(seed)
    order, crowd = stream.permutation(len(edits)), stream.permutation(len(edits.portraits))
    place_of = np.argsort(crowd).astype(np.int32)
    names = ("prompt", "editor", "arm", "state", "matching", "seed")
    columns = {name: column[order] for name in names if (column := getattr(edits, name)) is not None}
    moved = replace(
        edits,
        keys=[edits.keys[row] for row in order],
        image=[edits.image[row] for row in order],
        portrait=place_of[edits.portrait][order],
        second=None if edits.second is None else place_of[edits.second][order],
        portraits=tuple(edits.portraits[place] for place in crowd),
        **columns,
    )
    return moved, [
        replace(score, value=score.value[order], state=score.state[order]) for score in reversed(list(scores))
    ]


def ordinal(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """A latent value as a score from 1 to 5."""
    return 1.0 + np.searchsorted([0.0, 0.7, 1.4, 2.1], latent).astype(np.float64)
