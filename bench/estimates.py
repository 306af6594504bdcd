"""A 10,000-replicate cluster bootstrap of all group means and their disparity, against pandas and scipy.

The pandas loop resamples portraits and averages their rows, the obvious first version; it is timed on a few
replicates and scaled up. scipy.stats.bootstrap gets the data already collapsed to portraits, which is half the work:
once for the range of the groups alone, once with the standard errors that bootstrap-t needs and that ours computes.
Times are the best of three runs, after one to warm up, or of one run that takes longer than two seconds.
Memory is the peak of a separate process, at 1,000 and at 10,000 replicates.
Krippendorff's alpha of 200 continuous items is timed against the `krippendorff` package.
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench._figures import note
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings, contrasts, estimate
from stillme.estimates.agreement import alpha
from stillme.estimates.bootstrap import resample
from stillme.estimates.design import by_factor
from stillme.estimates.disparity import interval, null_bands
from stillme.estimates.quantities import Columns, Quantity
from stillme.types import ImageFile, Interval, Portrait, Prompt

GROUPS = 7
PROMPTS = 20
REPLICATES = 10_000
SIZES = {5_040: 84, 500_000: 8_400}
"""Rows and the portraits they are of."""


def main() -> None:
    for rows, people in SIZES.items():
        _compare(*simulated(rows, people))
    edits, scores = simulated(5_040, 84)
    race = Settings(factors=("race",))
    print("on 5,040 rows, 2,000 replicates and 10,000 permutations")
    for name, work in (
        ("all that `estimate` gives", lambda: estimate(edits, scores, race)),
        ("the same, prompts a sample", lambda: estimate(edits, scores, replace(race, prompts="sample"))),
        (
            "`contrasts`, 3 measures, 21 pairs with max-T",
            lambda: contrasts(edits, scores, race, against=("pairs",)),
        ),
    ):
        print(f"  {name:<46}{_seconds(work):>9.2f} s")
    _alpha()
    few, many = _peak(1_000), _peak(REPLICATES)
    print(f"peak memory, 500,000 rows: {few:.0f} MB at 1,000 replicates, {many:.0f} MB at 10,000 (×{many / few:.2f})")
    assert many <= 1.1 * few, "memory grows with the number of replicates"


def _compare(edits: Edits, scores: list[Scores]) -> None:
    _ours(edits, scores, 100)
    ours = _seconds(lambda: _ours(edits, scores, REPLICATES))
    print(f"{len(edits):>9,} rows, {len(edits.portraits):,} portraits, {REPLICATES:,} replicates")
    print(f"  {'stillme, from rows, with standard errors':<46}{ours:>9.2f} s")
    for module, name, peer in (
        ("pandas", "pandas loop from rows (scaled up)", _pandas),
        ("scipy", "scipy.stats.bootstrap, collapsed, range only", _scipy_range),
        ("scipy", "scipy.stats.bootstrap, collapsed, with errors", _scipy_errors),
    ):
        if importlib.util.find_spec(module) is None:
            print(f"  {name:<46} {module} is not installed")
            continue
        taken = peer(edits, scores)
        print(f"  {name:<46}{taken:>9.2f} s   {taken / ours:,.1f} times ours")
        note(__name__, f"intervals, {len(edits):,} rows", ours, "s", peer=name, of=taken)


def simulated(rows: int, people: int, *, spread: float = 0.75, seed: int = 0) -> tuple[Edits, list[Scores]]:
    """A fault at a base rate of 27 %, of portraits that differ, in seven equal groups that do not."""
    stream = np.random.default_rng(seed)
    portraits = tuple(
        Portrait(
            id=f"{number:06d}",
            image=ImageFile(path=Path("none"), sha256=""),
            attributes={"race": "ABCDEFG"[number % GROUPS]},
            label_origin="simulated",
            licence="CC0-1.0",
        )
        for number in range(people)
    )
    portrait = (np.arange(rows) % people).astype(np.int32)
    chance = 1 / (1 + np.exp(1 - stream.normal(0, spread, people)))
    value = np.where(stream.random(rows) < chance[portrait], 1.0, 5.0)
    zeros = np.zeros(rows, dtype=np.int32)
    edits = Edits(
        keys=[f"{number:08d}" for number in range(rows)],
        portrait=portrait,
        prompt=(np.arange(rows) // people % PROMPTS).astype(np.int32),
        editor=zeros,
        arm=zeros,
        state=zeros + EditState.EDITED,
        image=[""] * rows,
        portraits=portraits,
        prompts=tuple(Prompt(id=f"P{n:02d}", text="Do.", category="c", subcategory="s") for n in range(PROMPTS)),
        editors=("editor",),
        arms=("baseline",),
    )
    return edits, [Scores(judge="judge", axis="skin_tone", value=value, state=zeros + RatingState.RATED)]


def simulate(audits: int = 1_000) -> None:
    """False positive rates and coverage: the first table of docs/statistics.md. Takes some minutes."""
    from scipy.stats import kruskal

    print("portrait SD | Kruskal-Wallis on rows | A - rest | max - min | omnibus | coverage of group intervals")
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for spread in (0.0, 0.25, 0.5, 0.75, 1.0):
        truth = float((weights / (1 + np.exp(1 - spread * nodes))).sum() / weights.sum())
        wrong = np.zeros(5)
        for seed in range(audits):
            edits, scores = simulated(5_040, 84, spread=spread, seed=seed)
            settings = Settings(factors=("race",), replicates=400, seed=seed)
            columns = Columns.of(edits)
            quantity = _darkened(columns, scores)
            plan = by_factor(columns, "race", settings)
            (resampled,) = resample(plan, [quantity], settings)
            (band,) = null_bands(plan, [quantity], [resampled], settings)
            intervals = [outcome for outcome in resampled.outcomes if isinstance(outcome, Interval)]
            gap = interval(plan, quantity, resampled, settings)
            assert band is not None
            assert isinstance(gap, Interval)
            race = edits.portrait % GROUPS
            naive = kruskal(*(scores[0].value[race == group] for group in range(GROUPS))).pvalue
            wrong += (
                naive <= 0.05,
                not intervals[GROUPS].low <= 0 <= intervals[GROUPS].high,
                gap.low > 0,
                band.omnibus <= 0.05,
                np.mean([group.low <= truth <= group.high for group in intervals[:GROUPS]]),
            )
        print(f"{spread:>4} | " + " | ".join(f"{share:.3f}" for share in wrong / audits), flush=True)


def _ours(edits: Edits, scores: list[Scores], replicates: int) -> None:
    columns = Columns.of(edits)
    settings = Settings(factors=("race",), replicates=replicates)
    quantity = _darkened(columns, scores)
    plan = by_factor(columns, "race", settings)
    plan = replace(plan, comparisons=plan.comparisons[:GROUPS])
    (resampled,) = resample(plan, [quantity], settings)
    interval(plan, quantity, resampled, settings)


def _darkened(columns: Columns, scores: list[Scores]) -> Quantity:
    return next(quantity for quantity in columns.quantities(scores) if quantity.name == "skin_darkened")


def _pandas(edits: Edits, scores: list[Scores]) -> float:
    import pandas

    stream = np.random.default_rng(0)
    table = pandas.DataFrame({"portrait": edits.portrait, "erased": scores[0].value <= 2})
    table["race"] = table["portrait"] % GROUPS
    rows_of = dict(iter(table.groupby("portrait")))
    people = [np.flatnonzero(np.arange(len(edits.portraits)) % GROUPS == group) for group in range(GROUPS)]
    few = 20 if len(edits) < 100_000 else 2

    def loop() -> None:
        for _ in range(few):
            drawn = np.concatenate([stream.choice(group, len(group)) for group in people])
            means = pandas.concat([rows_of[portrait] for portrait in drawn]).groupby("race")["erased"].mean()
            _ = means.max() - means.min()

    return _seconds(loop) * REPLICATES / few


def _scipy_range(edits: Edits, scores: list[Scores]) -> float:
    from scipy.stats import bootstrap

    means = _sums(edits, scores) / np.bincount(edits.portrait)
    groups = [means[group::GROUPS] for group in range(GROUPS)]

    def disparity(*samples: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        return np.ptp(np.stack([sample.mean(axis=axis) for sample in samples]), axis=0)

    return _seconds(
        lambda: bootstrap(groups, disparity, n_resamples=REPLICATES, batch=250, method="basic", vectorized=True, rng=0)
    )


def _scipy_errors(edits: Edits, scores: list[Scores]) -> float:
    from scipy.stats import bootstrap

    sums, counts = _sums(edits, scores), np.bincount(edits.portrait).astype(float)

    def rate_and_error(
        summed: NDArray[np.float64], counted: NDArray[np.float64], axis: int = -1
    ) -> NDArray[np.float64]:
        total, number = summed.sum(axis=axis), counted.sum(axis=axis)
        rate = total / number
        residuals = summed - np.expand_dims(rate, axis) * counted
        return np.stack([rate, np.sqrt((residuals**2).sum(axis=axis)) / number])

    def all_groups() -> None:
        for group in range(GROUPS):
            data = (sums[group::GROUPS], counts[group::GROUPS])
            bootstrap(
                data,
                rate_and_error,
                n_resamples=REPLICATES,
                batch=250,
                method="basic",
                paired=True,
                vectorized=True,
                rng=0,
            )

    return _seconds(all_groups)


def _sums(edits: Edits, scores: list[Scores]) -> NDArray[np.float64]:
    return np.bincount(edits.portrait, weights=scores[0].value <= 2).astype(np.float64)


def _alpha() -> None:
    stream = np.random.default_rng(0)
    table = stream.normal(0, 1, (200, 1)) + stream.normal(0, 1, (200, 3))
    ours = _seconds(lambda: alpha(table, "ordinal"))
    print(f"alpha (ordinal) of 200 continuous items, 3 raters{ours * 1000:>9.2f} ms")
    if importlib.util.find_spec("krippendorff") is None:
        print("  krippendorff is not installed")
        return
    import krippendorff

    theirs = _seconds(lambda: krippendorff.alpha(table.T, level_of_measurement="ordinal"))
    note(__name__, "alpha of 200 items", 1000 * ours, "ms", peer="the krippendorff package", of=1000 * theirs)
    print(f"  {'the krippendorff package':<46}{theirs * 1000:>9.2f} ms   {theirs / ours:,.0f} times ours")


def _seconds(work: Callable[[], object]) -> float:
    best, spent = float("inf"), 0.0
    for _ in range(3):
        start = time.perf_counter()
        work()
        taken = time.perf_counter() - start
        best, spent = min(best, taken), spent + taken
        if spent > 2:
            break
    return best


def _peak(replicates: int) -> float:
    """Megabytes, in a separate process."""
    code = f"from bench.estimates import report_peak; report_peak({replicates})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def report_peak(replicates: int) -> None:
    """Bootstrap 500,000 rows and print the peak of this process."""
    _ours(*simulated(500_000, 8_400), replicates)
    print(own_peak())


def own_peak() -> float:
    """The peak of this process, in megabytes."""
    status = Path("/proc/self/status")
    # On Linux ru_maxrss of a child starts at its parent's size; VmHWM is its own.
    own = (
        [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if status.exists()
        else []
    )
    return (int(own[0]) if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


if __name__ == "__main__":
    main()
