"""Every analysis of fixed rows, written as text: the same bytes on every processor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np

from stillme.estimates import (
    EditState,
    RatingState,
    Settings,
    above_floor,
    contrasts,
    estimate,
    intraclass_correlations,
    paired_effects,
    row_tests,
)
from stillme.estimates.agreement import agreement
from stillme.estimates.people import against_people, corrected
from stillme.findings.tables.estimates import write_tables

from .worlds import ordinal, people, rows


def write(folder: Path) -> None:
    """Tables and analyses of rows with ties, gaps, and groups at 0 % and 100 %."""
    for number, prompts in enumerate(("fixed", "sample")):
        stream = np.random.default_rng(number)
        values = ordinal(stream.normal(0.8, 0.7, (36, 1)) + stream.normal(0, 1, (36, 7)))
        # A group at an end of the scale, and two groups that are tied.
        values[:12] = 1.0
        values[24:] = values[12:24]
        values[stream.random(values.shape) < 0.1] = np.nan
        edits, scores = rows(people("ABC", 12, blocks=bool(number)), values)
        state = np.where(np.arange(len(edits)) % 13 == 0, EditState.REFUSED, EditState.EDITED).astype(np.int32)
        edits = replace(edits, state=state)
        rated = np.full(len(edits), RatingState.RATED, dtype=np.int32)
        lab = replace(scores, axis="skin_delta_l", value=stream.normal(50, 9, len(edits)), state=rated)
        other = replace(scores, judge="other", value=ordinal(stream.normal(0.8, 1, len(edits))), state=rated)
        settings = Settings(factors=("race", "gender"), prompts=prompts)
        write_tables(estimate(edits, [scores, lab, other], settings), folder / prompts, settings)
        records = [
            *contrasts(edits, [scores, lab], settings, against=("rest", "pairs")),
            *intraclass_correlations(edits, [scores, lab], settings),
            *row_tests(edits, [scores, lab], settings),
            *agreement(edits, [scores, other], settings),
            *against_people(edits, other, scores, settings),
            *corrected(edits, other, scores, settings),
        ]
        treated = ordinal(stream.normal(0.8, 0.7, (24, 1, 1, 1)) + stream.normal(0, 1, (24, 5, 3, 2)))
        treated[:, :, 1, 1] = np.nan
        edits, scores = rows(people("AB", 12), treated, arms=("baseline", "feature", "noop"))
        settings = replace(settings, factors=("race",))
        records += [*paired_effects(edits, [scores], settings), *above_floor(edits, [scores], settings)]
        text = "".join(f"{type(record).__name__}: {'; '.join(_cells(record))}\n" for record in records)
        (folder / prompts / "records.txt").write_text(text, "utf-8")


def _cells(value: object) -> Iterator[str]:
    if is_dataclass(value):
        for field in fields(value):
            yield from _cells(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield str(dict(value))
    else:
        yield f"{value + 0.0:.9g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
