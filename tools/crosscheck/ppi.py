"""Compare `corrected` with ppi_py, the reference implementation of prediction-powered inference.

    python -m venv /tmp/ppi && /tmp/ppi/bin/pip install ppi-python
    /tmp/ppi/bin/python tools/crosscheck/ppi.py --record   # write its numbers to tests/estimates/fixtures/ppi.json
    python tools/crosscheck/ppi.py                         # compare ours with the recorded ones

ppi_py averages the judge over the edits that people did not rate, ours over all edits. The same estimate then has the
weight lam = ours × unrated / all; both are tuned to the smallest variance.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECORDED = Path(__file__).parents[2] / "tests" / "estimates" / "fixtures" / "ppi.json"
PORTRAITS, RATED, CUT = 1_200, 600, 3
AXIS, RATE = "race_change", "race_changed"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Scores of portraits × edits from 1 to 5, and which of them people gave, with which chance."""

    judge: Floats
    people: Floats
    rated: NDArray[np.bool_]
    chances: Floats


def data(name: str) -> Data:
    """`edits`: one edit a portrait; `weighted`: drawn with unequal chances; `portraits`: four edits, rated or not."""
    stream = np.random.default_rng([19, *name.encode()])
    edits = 4 if name == "portraits" else 1
    latent = stream.normal(0, 1, (PORTRAITS, 1)) + stream.normal(0, 0.7, (PORTRAITS, edits))
    cuts = np.array([-0.5, 0.3, 1.0, 1.8])
    judge = 1.0 + np.searchsorted(cuts, latent + 0.3 + stream.normal(0, 0.6, latent.shape))
    people = 1.0 + np.searchsorted(cuts, latent)
    chances = np.full(PORTRAITS, RATED / PORTRAITS)
    if name == "weighted":
        chances = np.where(np.arange(PORTRAITS) % 2 == 0, 0.7, 0.3)
    drawn = stream.random(PORTRAITS)
    if name != "weighted":
        drawn = np.argsort(np.argsort(drawn)) / PORTRAITS
    shape = (1, edits)
    return Data(judge, people, np.tile((drawn < chances)[:, None], shape), np.tile(chances[:, None], shape))


NAMES = ("edits", "weighted", "portraits")
BY_ROWS = "error_by_rows"
"""The standard error where four edits of a portrait count as independent; nothing of ours has it."""


def by_ppi() -> dict[str, float]:
    """In an environment that has ppi_py."""
    from ppi_py import ppi_mean_ci, ppi_mean_pointestimate  # type: ignore[import-not-found]

    numbers: dict[str, float] = {}
    for name in NAMES:
        rows = data(name)
        for quantity in (AXIS, RATE):
            judge, people = rows.judge, rows.people
            if quantity == RATE:
                judge, people = (judge >= CUT).astype(float), (people >= CUT).astype(float)
            if name == "portraits":
                rowwise = (people[rows.rated], judge[rows.rated], judge[~rows.rated])
                numbers[f"{BY_ROWS}_{quantity}"] = _error(ppi_mean_ci(*rowwise, alpha=0.05))
            # A portrait's mean is one answer: its edits are not independent.
            there = rows.rated[:, 0]
            judge, people = judge.mean(axis=1), people.mean(axis=1)
            weights: dict[str, Any] = {"w": 1 / rows.chances[there, 0]} if name == "weighted" else {}
            given = (people[there], judge[there], judge[~there])
            whole = len(judge) / float((~there).sum())
            if name != "weighted":
                error, value = _error(ppi_mean_ci(*given, alpha=0.05)), float(ppi_mean_pointestimate(*given)[0])
                numbers[f"{name}_{quantity}_tuned"] = value
                numbers[f"{name}_{quantity}_error"] = error
                numbers[f"{name}_{quantity}_weight"] = _weight(ppi_mean_pointestimate, given, value) * whole
            else:
                # Unrated edits stand for all only if they are weighed too: the judge's mean over all is given instead.
                given = (people[there], judge[there], judge)
            for weight in (0.0, 0.6, 1.0):
                lam = weight / whole if name != "weighted" else weight
                value = float(np.squeeze(ppi_mean_pointestimate(*given, lam=lam, **weights)))
                numbers[f"{name}_{quantity}_at_{weight:g}"] = value
    return numbers


def _error(limits: tuple[Floats, Floats]) -> float:
    """A standard error from limits at 95 %."""
    return float(np.squeeze(limits[1]) - np.squeeze(limits[0])) / 2 / 1.959963984540054


def _weight(estimate: Any, given: tuple[Floats, Floats, Floats], value: float) -> float:
    """ppi_py does not return its lam; the estimate is linear in it."""
    none, full = (float(np.squeeze(estimate(*given, lam=lam))) for lam in (0.0, 1.0))
    return (value - none) / (full - none)


def by_stillme() -> dict[str, float]:
    """The same numbers by `corrected`; at a given weight from its own parts."""
    from stillme.estimates import Settings
    from stillme.estimates.agreement import corrected
    from stillme.estimates.quantiles import t_quantile
    from stillme.types import Interval

    numbers: dict[str, float] = {}
    for name in NAMES:
        rows = data(name)
        edits, judge, people = _columns(rows)
        chances = rows.chances.ravel() if name == "weighted" else None
        settings = Settings(factors=(), replicates=100)
        for found in corrected(edits, judge, people, settings, quantities=(AXIS, RATE), chances=chances):
            assert isinstance(found.outcome, Interval)
            assert isinstance(found.people, Interval)
            assert found.weight
            # The estimate is linear in the weight: people alone at 0, and the estimate at its own.
            slope = (found.outcome.value - found.people.value) / found.weight
            for weight in (0.0, 0.6, 1.0):
                numbers[f"{name}_{found.quantity}_at_{weight:g}"] = found.people.value + weight * slope
            if name != "weighted":
                low, high, scale = found.outcome.low, found.outcome.high, 1.0
                if found.quantity == RATE:
                    scale = found.outcome.value * (1 - found.outcome.value)
                    low, high = (math.log(end / (1 - end)) for end in (low, high))
                student = t_quantile(0.975, np.count_nonzero(rows.rated[:, 0]) - 1)
                numbers[f"{name}_{found.quantity}_tuned"] = found.outcome.value
                numbers[f"{name}_{found.quantity}_error"] = scale * (high - low) / 2 / student
                numbers[f"{name}_{found.quantity}_weight"] = found.weight
    return numbers


def _columns(rows: Data) -> tuple[Any, Any, Any]:
    from stillme.estimates import Edits, EditState, RatingState, Scores
    from stillme.types import ImageFile, Portrait, Prompt

    portrait, prompt = np.indices(rows.judge.shape).reshape(2, -1).astype(np.int32)
    zeros = np.zeros(rows.judge.size, dtype=np.int32)
    edits = Edits(
        keys=[f"{number:05d}" for number in range(rows.judge.size)],
        portrait=portrait,
        prompt=prompt,
        editor=zeros,
        arm=zeros,
        state=zeros + EditState.EDITED,
        image=[""] * rows.judge.size,
        portraits=tuple(
            Portrait(
                id=f"{number:04d}",
                image=ImageFile(path=Path("none"), sha256=""),
                attributes={},
                label_origin="simulated",
                licence="CC0-1.0",
            )
            for number in range(PORTRAITS)
        ),
        prompts=tuple(
            Prompt(id=f"P{n}", text="Do.", category="c", subcategory="s") for n in range(rows.judge.shape[1])
        ),
        editors=("editor",),
        arms=("baseline",),
    )
    seen = rows.rated.ravel()
    state = np.where(seen, RatingState.RATED, RatingState.MISSING).astype(np.int32)
    judge = Scores(judge="judge", axis=AXIS, value=rows.judge.ravel(), state=zeros + RatingState.RATED)
    people = Scores(judge="people", axis=AXIS, value=np.where(seen, rows.people.ravel(), np.nan), state=state)
    return edits, judge, people


TOLERANCE: Mapping[str, float] = {"tuned": 5e-5, "error": 1e-4, "weight": 2e-3}
"""Otherwise 1e-9. ppi_py tunes with the variance of all edits, ours with that of each side; it divides by n, ours by
n - 1: they differ by about 1 / n."""


def main() -> None:
    if "--record" in sys.argv:
        RECORDED.write_text(json.dumps(by_ppi(), indent=1) + "\n", "utf-8")
        return
    theirs, ours = json.loads(RECORDED.read_text("utf-8")), by_stillme()
    for name, value in theirs.items():
        if name.startswith(BY_ROWS):
            print(f"{name:<40}{value:>16.9f}")
            continue
        print(f"{name:<40}{value:>16.9f}{ours[name]:>16.9f}{abs(value - ours[name]):>12.1e}")


if __name__ == "__main__":
    main()
