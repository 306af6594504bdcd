"""Do intervals hold what they promise, and do tests find nothing where there is nothing? Simulated, the truth known.

    python tools/coverage.py [AUDITS]

Prints the second table of docs/statistics.md. Same seed, same table; with 1,000 audits a share is sure to about ±.014.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from stillme.estimates import (
    Disparity,
    Edits,
    EditState,
    PairedEffect,
    RatingState,
    Scores,
    Settings,
    contrasts,
    equivalence,
    estimate,
    paired_effects,
    paired_row_tests,
    row_tests,
)
from stillme.estimates.agreement import against_people, agreement, corrected
from stillme.types import ImageFile, Interval, Portrait, Prompt

LEVELS, PER_LEVEL, PROMPTS = "ABCDEFG", 12, 20
PORTRAIT, EDIT = 0.7, 1.0
"""Standard deviations on the latent scale, between portraits and between edits of one."""
CUTS = (0.8, 1.4, 2.0, 2.6)
SHIFT = 0.5
INTERACTION = 0.8
"""How unequally prompts treat group A."""

Shares = dict[str, float]


def main() -> None:
    audits = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    for title, simulation in (
        ("contrasts, truth planted", planted),
        ("contrasts, nothing planted", nothing),
        ("prompts are a sample", sampled_prompts),
        ("equivalence at the margin", at_the_margin),
        ("mitigation, same effect for all", mitigation),
        ("mitigation that does nothing, edits picked by a bad baseline", regression),
        ("judge and people", people),
    ):
        found: dict[str, list[float]] = {}
        for seed in range(audits):
            for name, value in simulation(seed).items():
                found.setdefault(name, []).append(value)
        print(title)
        for name, values in found.items():
            print(f"  {name:<80}{np.mean(values):.3f}", flush=True)


def planted(seed: int) -> Shares:
    """Group A lies higher by half a latent unit."""
    edits, scores = world(seed, shift=SHIFT)
    rest, group = scores_of(0.0), scores_of(SHIFT)
    truth = {
        "difference": float((group - rest) @ np.arange(1, 6)),
        "ratio": float(group[2:].sum() / rest[2:].sum()),
        "cliffs_delta": dominance(group, rest),
    }
    found = contrasts(edits, [scores], settings(seed), against=("rest",), quantities=("race_change", "race_changed"))
    return {
        f"95 % interval of the {each.measure} ({each.quantity}) holds the truth": holds(
            each.outcome, truth[each.measure]
        )
        for each in found
        if each.level == "A" and (each.measure == "difference") <= (each.quantity == "race_change")
    }


def nothing(seed: int) -> Shares:
    """Portraits differ, groups do not."""
    edits, scores = world(seed)
    wanted = settings(seed)
    pairs = contrasts(
        edits, [scores], wanted, against=("pairs",), measures=("difference",), quantities=("race_change",)
    )
    naive = {each.test: each.p or 1.0 for each in row_tests(edits, [scores], wanted) if each.group in ("", "A - rest")}
    (band,) = (
        each.null
        for each in estimate(edits, [scores], wanted)
        if isinstance(each, Disparity) and each.quantity == "race_change"
    )
    luck = [each.permutation for each in pairs if each.permutation]
    return {
        "Kruskal–Wallis on rows finds a difference (naive)": float(naive["Kruskal–Wallis"] <= 0.05),
        "Mann–Whitney on rows, one group against the rest (naive)": float(naive["Mann–Whitney"] <= 0.05),
        "permutation, all groups": float(band is not None and band.omnibus <= 0.05),
        "permutation, one pair": float(np.mean([each.p <= 0.05 for each in luck])),
        "permutation, any of 21 pairs by max-T": float(min(each.max_t for each in luck) <= 0.05),
    }


def sampled_prompts(seed: int) -> Shares:
    """Prompts differ, and treat group A differently; the truth is about prompts that were not tried."""
    edits, scores = world(seed, shift=SHIFT, prompt=0.5, interaction=INTERACTION)
    rest = scores_of(0.0, extra=0.5**2)
    group = scores_of(SHIFT, extra=0.5**2 + INTERACTION**2)
    truth = float((group - rest) @ np.arange(1, 6))
    found: Shares = {}
    for prompts, name in (("fixed", "portraits only"), ("sample", "portraits and prompts")):
        wanted = Settings(factors=("race",), replicates=400, seed=seed, prompts=prompts)
        each = contrasts(
            edits, [scores], wanted, against=("rest",), measures=("difference",), quantities=("race_change",)
        )[0]
        found[f"95 % interval over {name} holds the truth about all prompts"] = holds(each.outcome, truth)
    return found


def at_the_margin(seed: int) -> Shares:
    """The gap is just as large as the margin, so equivalence must not be claimed."""
    edits, scores = world(seed, shift=SHIFT)
    margin = float((scores_of(SHIFT) - scores_of(0.0)) @ np.arange(1, 6))
    found = equivalence(edits, [scores], settings(seed), margin=margin, quantities=("race_change",))
    return {"equivalence is claimed": float(bool(found[0].holds))}


def mitigation(seed: int) -> Shares:
    """An arm that lowers the latent value by half for everyone; group A starts higher and so gains more points."""
    edits, scores = world(seed, shift=SHIFT, arms=("baseline", "feature"), effect=-0.5)
    everyone = float((scores_of(-0.5) - scores_of(0.0)) @ np.arange(1, 6))
    first = float((scores_of(SHIFT - 0.5) - scores_of(SHIFT)) @ np.arange(1, 6))
    found = {
        each.group: each
        for each in paired_effects(edits, [scores], settings(seed), quantities=("race_change",))
        if isinstance(each, PairedEffect)
    }
    return {
        "95 % interval of a group's change holds the truth": holds(found["B"].outcome, everyone),
        "95 % interval of the asymmetry (A - rest) holds the truth": holds(found["A - rest"].outcome, first - everyone),
        "the asymmetry is found": float(excludes_zero(found["A - rest"].outcome)),
        "the asymmetry at an equal baseline is found": float(excludes_zero(found["A - rest"].at_equal_baseline)),
    }


def regression(seed: int) -> Shares:
    """Two untreated runs and a useless arm; only edits whose first run scored 3 or more are kept."""
    edits, scores = world(seed, arms=("baseline", "feature"), seeds=2)
    value = scores.value.reshape(len(LEVELS) * PER_LEVEL, PROMPTS, 2, 2)
    kept = np.broadcast_to((value[:, :, :1, :1] >= 3), value.shape).copy()
    kept[:, :, 1, 1] = False
    rows = kept.ravel()
    part, rated = edits.where(rows), scores.where(rows)
    found = next(
        each
        for each in paired_effects(part, [rated], settings(seed, factors=()), quantities=("race_change",))
        if isinstance(each, PairedEffect) and each.scope == "all"
    )
    wilcoxon = paired_row_tests(part, [rated], quantities=("race_change",))[0]
    assert isinstance(found.outcome, Interval)
    return {
        "mean change, arm less baseline": found.outcome.value,
        "Wilcoxon finds an effect (naive)": float((wilcoxon.p or 1) <= 0.05),
        "the plain change is found": float(excludes_zero(found.outcome)),
        "the change beyond an untreated re-run is found": float(excludes_zero(found.beyond_untreated)),
    }


def people(seed: int) -> Shares:
    """Three raters see 300 of 1,680 edits, a judge that rates too high all of them."""
    stream = np.random.default_rng(seed + 10**6)
    latent, portraits = latents(seed, 0.0, 0.0, 0.0)
    edits, judge = columns(portraits, score(latent + 0.4 + stream.normal(0, 0.7, latent.shape)), "judge")
    seen = np.zeros(latent.size, dtype=bool)
    seen[stream.choice(latent.size, 300, replace=False)] = True
    raters = []
    for number in range(3):
        _, each = columns(portraits, score(latent + stream.normal(0, 0.7, latent.shape)), f"person {number}")
        state = np.where(seen, RatingState.RATED, RatingState.MISSING).astype(np.int32)
        raters.append(Scores(judge=each.judge, axis=each.axis, value=np.where(seen, each.value, np.nan), state=state))
    one = raters[0]
    truth = float(scores_of(0.0, extra=0.7**2) @ np.arange(1, 6))
    judged = float(scores_of(0.4, extra=0.7**2) @ np.arange(1, 6))
    wanted = settings(seed, factors=())
    mended = corrected(edits, judge, one, wanted, quantities=("race_change",))[0]
    agreed = {each.measure: each.outcome for each in agreement(edits, raters, wanted)}
    bias = next(each for each in against_people(edits, judge, one, wanted) if each.measure == "bias")
    assert isinstance(mended.outcome, Interval)
    assert isinstance(mended.people, Interval)
    return {
        "95 % interval of the corrected mean holds the truth": holds(mended.outcome, truth),
        "its width against people alone": (mended.outcome.high - mended.outcome.low)
        / (mended.people.high - mended.people.low),
        "95 % interval of the judge's bias holds the truth": holds(bias.outcome, judged - truth),
        "95 % interval of alpha (interval) holds the truth": holds(agreed["alpha_interval"], ALPHA),
    }


def settings(seed: int, factors: tuple[str, ...] = ("race",)) -> Settings:
    return Settings(factors=factors, replicates=400, seed=seed)


def holds(outcome: object, truth: float) -> float:
    assert isinstance(outcome, Interval), outcome
    return float(outcome.low <= truth <= outcome.high)


def excludes_zero(outcome: object) -> bool:
    assert isinstance(outcome, Interval), outcome
    return outcome.low > 0 or outcome.high < 0


def scores_of(shift: float, *, extra: float = 0.0) -> NDArray[np.float64]:
    """The chances of 1 to 5 for an edit of a random portrait."""
    spread = (PORTRAIT**2 + EDIT**2 + extra) ** 0.5
    below = [NormalDist(shift, spread).cdf(cut) for cut in CUTS]
    return np.diff([0.0, *below, 1.0])


def dominance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    sign = np.sign(np.arange(5)[:, None] - np.arange(5)[None, :])
    return float(one @ sign @ other)


def score(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 + np.searchsorted(CUTS, latent)


def latents(
    seed: int, shift: float, prompt: float, interaction: float
) -> tuple[NDArray[np.float64], tuple[Portrait, ...]]:
    """By portrait and prompt."""
    stream = np.random.default_rng(seed)
    people = len(LEVELS) * PER_LEVEL
    first = (np.arange(people) < PER_LEVEL)[:, None]
    latent = stream.normal(0, PORTRAIT, people)[:, None] + stream.normal(0, EDIT, (people, PROMPTS))
    latent = latent + stream.normal(0, prompt, PROMPTS) + first * (shift + stream.normal(0, interaction, PROMPTS))
    return latent, tuple(person(level, number) for level in LEVELS for number in range(PER_LEVEL))


def world(
    seed: int,
    *,
    shift: float = 0.0,
    prompt: float = 0.0,
    interaction: float = 0.0,
    arms: tuple[str, ...] = ("baseline",),
    seeds: int = 1,
    effect: float = 0.0,
) -> tuple[Edits, Scores]:
    """Every portrait with every prompt, arm and seed; edits of one portrait and prompt share nothing more."""
    stream = np.random.default_rng(seed)
    people = len(LEVELS) * PER_LEVEL
    shape = (people, PROMPTS, len(arms), seeds)
    first = (np.arange(people) < PER_LEVEL)[:, None]
    fixed = stream.normal(0, PORTRAIT, people)[:, None] + stream.normal(0, prompt, PROMPTS)
    fixed = fixed + first * (shift + stream.normal(0, interaction, PROMPTS))
    latent = fixed[:, :, None, None] + stream.normal(0, EDIT, shape)
    latent[:, :, 1:] += effect
    portraits = tuple(person(level, number) for level in LEVELS for number in range(PER_LEVEL))
    return columns(portraits, score(latent), "judge", arms)


def columns(
    portraits: tuple[Portrait, ...], value: NDArray[np.float64], judge: str, arms: tuple[str, ...] = ("baseline",)
) -> tuple[Edits, Scores]:
    full = value.reshape(value.shape + (1,) * (4 - value.ndim))
    portrait, prompt, arm, seed = np.indices(full.shape).reshape(4, -1).astype(np.int32)
    zeros = np.zeros(full.size, dtype=np.int32)
    edits = Edits(
        keys=[f"{number:08d}" for number in range(full.size)],
        portrait=portrait,
        prompt=prompt,
        editor=zeros,
        arm=arm,
        state=zeros + EditState.EDITED,
        image=[""] * full.size,
        portraits=portraits,
        prompts=tuple(Prompt(id=f"P{n:02d}", text="Do.", category="c", subcategory="s") for n in range(PROMPTS)),
        editors=("editor",),
        arms=arms,
        seed=seed,
    )
    return edits, Scores(judge=judge, axis="race_change", value=full.ravel(), state=zeros + RatingState.RATED)


def person(level: str, number: int) -> Portrait:
    return Portrait(
        id=f"{level}{number:02d}",
        image=ImageFile(path=Path("none"), sha256=""),
        attributes={"race": level},
        label_origin="simulated",
        licence="CC0-1.0",
    )


def _alpha() -> float:
    """Alpha of endless raters and edits: 1 - variance within an edit over variance of all ratings."""
    stream = np.random.default_rng(0)
    latent = stream.normal(0, (PORTRAIT**2 + EDIT**2) ** 0.5, 400_000)
    one, other = (score(latent + stream.normal(0, 0.7, latent.size)) for _ in range(2))
    return float(1 - ((one - other) ** 2).mean() / 2 / np.concatenate([one, other]).var())


ALPHA = _alpha()

if __name__ == "__main__":
    main()
