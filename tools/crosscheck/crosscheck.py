"""Compare stillme.estimates with R, number by number.

    python tools/crosscheck/crosscheck.py            # R where there is one, else the recorded numbers
    python tools/crosscheck/crosscheck.py --record   # write R's numbers to tests/estimates/fixtures/crosscheck.json

R comes from Debian: `apt-get install r-base-core r-cran-ordinal r-cran-coin r-cran-boot r-cran-psych`. Debian has no
`irr`, so Fleiss' kappa and Krippendorff's alpha are written out in R from their definitions.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.estimates import (
    Edits,
    EditState,
    RatingState,
    Scores,
    Settings,
    contrasts,
    equivalence,
    estimate,
    intraclass_correlations,
    odds_ratios,
    paired_row_tests,
    row_tests,
)
from stillme.estimates.agreement import agreement
from stillme.estimates.quantiles import t_quantile
from stillme.types import ImageFile, Interval, Portrait, Prompt

HERE = Path(__file__).parent
RECORDED = HERE.parents[1] / "tests" / "estimates" / "fixtures" / "crosscheck.json"
LEVELS, PER_LEVEL, PROMPTS = "ABC", 8, 10
Floats = NDArray[np.float64]

HALF = t_quantile(0.975, len(LEVELS) * PER_LEVEL - len(LEVELS))
"""Half the width of an odds ratio's interval in standard errors: portraits minus groups are its degrees of freedom."""

TOLERANCE: Mapping[str, float] = {
    # Monte Carlo: 10,000 permutations, 20,000 resamples; another approximation of the likelihood's integral.
    "permutation_p": 0.015,
    "boot_t_low": 0.06,
    "boot_t_high": 0.06,
    "clmm_B": 2e-3,
    "clmm_C": 2e-3,
    "clmm_se_B": 5e-3,
    "clmm_se_C": 5e-3,
    "clmm_sd": 5e-3,
}
"""By name; every other number must agree to 1e-9."""


def main() -> None:
    record = "--record" in sys.argv[1:]
    theirs = by_r() if shutil.which("Rscript") else None
    if theirs is None:
        if record:
            raise SystemExit("There is no Rscript on this machine; install r-base-core.")
        theirs = json.loads(RECORDED.read_text("utf-8"))
    ours = by_stillme()
    if record:
        RECORDED.write_text(json.dumps(theirs, indent=1, sort_keys=True) + "\n", "utf-8")
    worst = True
    for name, value in theirs.items():
        away = abs(ours[name] - value)
        agrees = away <= TOLERANCE.get(name, 1e-9)
        worst &= agrees
        print(f"{name:<24}{value:>18.10g}{ours[name]:>18.10g}   {away:8.1e}   {'' if agrees else 'DIFFERS'}")
    raise SystemExit(0 if worst else 1)


def scores_of_rows() -> Floats:
    """Portraits × prompts, three races that differ."""
    stream = np.random.default_rng(20261117)
    people = len(LEVELS) * PER_LEVEL
    latent = stream.normal(0, 0.7, (people, 1)) + stream.normal(0, 1, (people, PROMPTS))
    latent += np.repeat([0.6, 0.0, -0.2], PER_LEVEL)[:, None]
    return 1.0 + np.searchsorted([-0.5, 0.3, 1.0, 1.8], latent)


def second_arm() -> Floats:
    stream = np.random.default_rng(7)
    return np.clip(scores_of_rows() + stream.integers(-2, 2, (len(LEVELS) * PER_LEVEL, PROMPTS)), 1, 5)


def ratings() -> Floats:
    """Edits × raters, none missing."""
    stream = np.random.default_rng(11)
    edits = scores_of_rows().ravel()[:, None]
    return np.clip(edits + stream.integers(-1, 2, (len(edits), 3)), 1, 5)


def by_r() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        values = scores_of_rows()
        names = [f"{level}{number}" for level in LEVELS for number in range(PER_LEVEL)]
        _write(
            Path(folder) / "rows.csv",
            ("portrait", "race", "score"),
            [(name, name[0], score) for name, row in zip(names, values, strict=True) for score in row],
        )
        pairs = zip(values.ravel(), second_arm().ravel(), strict=True)
        _write(Path(folder) / "pairs.csv", ("before", "after"), list(pairs))
        _write(Path(folder) / "ratings.csv", ("one", "two", "three"), [tuple(row) for row in ratings()])
        done = subprocess.run(
            ["Rscript", "--vanilla", str(HERE / "crosscheck.R"), folder], capture_output=True, text=True, check=True
        )
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])


def by_stillme() -> dict[str, float]:
    edits, scores = columns(np.stack([scores_of_rows(), second_arm()], axis=2))
    baseline = edits.arm == 0
    alone, rated = edits.where(baseline), scores.where(baseline)
    settings = Settings(factors=("race",), replicates=2000)
    tests = {(test.test, test.group): test for test in row_tests(alone, [rated], settings)}
    kruskal, mann = tests["Kruskal–Wallis", ""], tests["Mann–Whitney", "A - rest"]
    (signed,) = paired_row_tests(edits, [scores])
    raters = [replace_value(rated, ratings()[:, place], f"rater {place}") for place in range(3)]
    three = {part.measure: value_of(part.outcome) for part in agreement(alone, raters, settings) if not part.factor}
    two = {part.measure: value_of(part.outcome) for part in agreement(alone, raters[:2], settings) if not part.factor}
    (icc,) = [part for part in intraclass_correlations(alone, [rated], settings) if part.quantity == "race_change"]
    six = np.array([int(alone.portraits[place].id[1:]) < 6 for place in alone.portrait])
    few, rated_few = alone.where(six), rated.where(six)
    of_few = estimate(few, [rated_few], settings)
    groups = {part.group: part.outcome for part in of_few if part.quantity == "race_change"}
    (welch,) = [
        part.outcome
        for part in contrasts(few, [rated_few], settings, against=("pairs",), measures=("difference",))
        if part.quantity == "race_change" and part.group == "A - B"
    ]
    both = Settings(factors=("race",), replicates=2000, reference={"race": "B"})
    (tost,) = [
        part.outcome
        for part in equivalence(few, [rated_few], both, margin=5.0, quantities=("race_change",))
        if part.group == "A - B"
    ]
    (pair,) = [
        part
        for part in contrasts(alone, [rated], settings, against=("pairs",), measures=("difference",))
        if part.quantity == "race_change" and part.group == "A - B"
    ]
    (whole,) = [
        part.outcome
        for part in estimate(alone, [rated], settings)
        if (part.quantity, part.group) == ("race_change", "A")
    ]
    fitted = {part.level: part for part in odds_ratios(alone, [rated], settings)}
    assert pair.permutation
    numbers = {
        "kruskal_statistic": kruskal.statistic,
        "kruskal_p": kruskal.p,
        "mannwhitney_statistic": mann.statistic,
        "mannwhitney_p": mann.p,
        "wilcoxon_p": signed.p,
        "fleiss_kappa": three["fleiss_kappa"],
        "alpha_nominal": three["alpha_nominal"],
        "alpha_interval": three["alpha_interval"],
        "alpha_ordinal": three["alpha_ordinal"],
        "icc_anova": value_of(icc.icc),
        "icc_psych": value_of(icc.icc),
        "kappa_psych": two["kappa"],
        "kappa_quadratic_psych": two["kappa_quadratic"],
        **_limits("t", groups["A"]),
        **_limits("welch", welch),
        **_limits("tost", tost),
        **_limits("boot_t", whole),
        "permutation_p": pair.permutation.p,
        **_fitted(fitted),
    }
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _limits(name: str, outcome: object) -> dict[str, float]:
    assert isinstance(outcome, Interval), outcome
    return {f"{name}_low": outcome.low, f"{name}_high": outcome.high}


def _fitted(fitted: Mapping[str, object]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for group, part in fitted.items():
        outcome = getattr(part, "outcome")  # noqa: B009
        assert isinstance(outcome, Interval), outcome
        level = group.partition(" - ")[0]
        numbers[f"clmm_{level}"] = math.log(outcome.value)
        numbers[f"clmm_se_{level}"] = (math.log(outcome.high) - math.log(outcome.low)) / (2 * HALF)
        numbers["clmm_sd"] = getattr(part, "spread", math.nan)
    return numbers


def value_of(outcome: object) -> float:
    assert isinstance(outcome, Interval), outcome
    return outcome.value


def replace_value(scores: Scores, value: Floats, judge: str) -> Scores:
    return Scores(judge=judge, axis=scores.axis, value=value, state=scores.state)


def columns(values: Floats) -> tuple[Edits, Scores]:
    """Rows of portraits × prompts × arms."""
    portrait, prompt, arm = np.indices(values.shape).reshape(3, -1).astype(np.int32)
    zeros = np.zeros(values.size, dtype=np.int32)
    people = tuple(
        Portrait(
            id=f"{level}{number}",
            image=ImageFile(path=Path("none"), sha256=""),
            attributes={"race": level},
            label_origin="simulated",
            licence="CC0-1.0",
        )
        for level in LEVELS
        for number in range(PER_LEVEL)
    )
    edits = Edits(
        keys=[f"{number:06d}" for number in range(values.size)],
        portrait=portrait,
        prompt=prompt,
        editor=zeros,
        arm=arm,
        state=zeros + EditState.EDITED,
        image=[""] * values.size,
        portraits=people,
        prompts=tuple(Prompt(id=f"P{n}", text="Do.", category="c", subcategory="s") for n in range(PROMPTS)),
        editors=("editor",),
        arms=("baseline", "feature"),
    )
    rated = zeros + RatingState.RATED
    return edits, Scores(judge="judge", axis="race_change", value=values.ravel().astype(float), state=rated)


if __name__ == "__main__":
    main()
