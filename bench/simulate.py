"""Simulated audits with a known truth: how often intervals cover it, and how often a gap is found that is not there.

    python -m bench.simulate [SCENARIO ...] [--audits N] [--processes N]

Every audit has 12 identities (2 genders × 6 ages) in 7 presets, 84 portraits, as the embedded set, and 20 prompts,
unless its scenario says otherwise. Identities, portraits and prompts have normal effects on the logit scale. The last
two tables of the output are those of docs/statistics.md; shares that are not nominal are bold.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Estimate, ImageFile, Interval, Portrait, Prompt
from stillme.estimates import (
    Disparity,
    Edits,
    EditState,
    RatingState,
    Scores,
    Settings,
    contrasts,
    estimate,
    gap_changes,
    paired_effects,
)
from stillme.estimates.people import corrected

Floats = NDArray[np.float64]
Results = Iterator[tuple[str, bool]]
"""What was looked at, and whether it held, or was found."""

COVERS = "covers"
FOUND = "found"
WITHIN = {COVERS: (0.94, 1.0), FOUND: (0.0, 0.06)}
"""What is called nominal: intervals cover at least so often; what is not there is found at most so often."""

NO_FAULT, FAULT = 1.0, 5.0
NONE = 1e-9
PRESETS, GENDERS, AGES = "ABCDEFG", "fm", "123456"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How scores come about."""

    rate: float = 0.27
    """Of faults, of somebody without any effect of their own."""
    identity: float = 0.5
    """Standard deviation of identities, in logits."""
    portrait: float = 0.5
    prompt: float = 0.0
    """Of what a prompt does to one preset and not to others."""
    gap: float = 0.0
    """How much more often preset A is faulty, in logits."""
    volatile: float = 0.0
    """Standard deviation of the portraits of preset A; 0 for that of the others."""
    concentrated: float = 0.0
    """The share of portraits that have all the faults; 0 for all."""
    prompts: int = 20
    identities: int = 1
    """Of each gender and age."""
    presets: int = 7
    blocks: bool = True
    """Whether portraits of one identity are known to be."""

    @property
    def base(self) -> float:
        """The rate as a logit."""
        return math.log(self.rate / (1 - self.rate))

    def chances(self, stream: np.random.Generator) -> Floats:
        """Portraits × prompts: each edit's chance of a fault."""
        presets, identities = self.presets, 12 * self.identities
        logit = np.full((presets, identities, self.prompts), self.base)
        logit += self.identity * stream.standard_normal((1, identities, 1))
        spread = np.full((presets, 1, 1), self.portrait)
        spread[0] = self.volatile or self.portrait
        logit += spread * stream.standard_normal((presets, identities, 1))
        logit += self.prompt * stream.standard_normal((presets, 1, self.prompts))
        logit[0] += self.gap
        chance = 1 / (1 + np.exp(-logit))
        if self.concentrated:
            chance = np.where(stream.random((presets, identities, 1)) < self.concentrated, 0.8, 0.0) + 0 * chance
        return chance.reshape(presets * identities, self.prompts)

    def truth(self, preset: int) -> float:
        """The rate of a preset, over all identities, portraits and prompts that there might be."""
        if self.concentrated:
            return 0.8 * self.concentrated
        spread = self.volatile if preset == 0 and self.volatile else self.portrait
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        variance = spread**2 + self.identity**2 + self.prompt**2
        logit = self.base + (self.gap if preset == 0 else 0.0) + math.sqrt(variance) * nodes
        return float((weights / (1 + np.exp(-logit))).sum() / weights.sum())


@cache
def people(world: World) -> tuple[Portrait, ...]:
    return tuple(
        Portrait(
            id=f"{preset}{gender}{age}{number}",
            image=ImageFile(path=Path("none"), sha256=""),
            attributes={"race": preset, "gender": gender, "age": age},
            label_origin="simulated",
            licence="CC0-1.0",
            block=f"{gender}{age}{number}" if world.blocks else "",
        )
        for preset in PRESETS[: world.presets]
        for gender in GENDERS
        for age in AGES
        for number in range(world.identities)
    )


def rows(world: World, values: Floats, axis: str = "race_change") -> tuple[Edits, Scores]:
    """Columns from portraits × prompts (× arms); NaN is an edit without a score."""
    full = values.reshape(*values.shape[:2], -1)
    portrait, prompt, arm = np.indices(full.shape).reshape(3, -1).astype(np.int32)
    value = full.ravel()
    edits = Edits(
        keys=_keys(len(value)),
        portrait=portrait,
        prompt=prompt,
        editor=np.zeros(len(value), dtype=np.int32),
        arm=arm,
        state=np.full(len(value), EditState.EDITED, dtype=np.int32),
        image=[""] * len(value),
        portraits=people(world),
        prompts=_prompts(full.shape[1]),
        editors=("editor",),
        arms=("baseline", "feature")[: full.shape[2]],
    )
    state = np.where(np.isnan(value), RatingState.MISSING, RatingState.RATED).astype(np.int32)
    return edits, Scores(judge="judge", axis=axis, value=value, state=state)


@cache
def _keys(size: int) -> tuple[str, ...]:
    return tuple(f"{number:08d}" for number in range(size))


@cache
def _prompts(size: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(id=f"P{n:03d}", text="Do.", category="c", subcategory="s") for n in range(size))


def faults(world: World, stream: np.random.Generator) -> Floats:
    """Portraits × prompts: 5 for a fault, else 1."""
    chance = world.chances(stream)
    return np.where(stream.random(chance.shape) < chance, FAULT, NO_FAULT)


# -- what is looked at -----------------------------------------------------------------------------------------------


def settings(*factors: str, **options: object) -> Settings:
    return replace(Settings(factors=factors, matched_on=("race", "gender", "age")), **options)


def covers(estimate: Estimate, truth: float) -> bool:
    """Whether an interval covers the truth; what is not estimable claims nothing."""
    outcome = estimate.outcome
    return not isinstance(outcome, Interval) or outcome.low - 1e-9 <= truth <= outcome.high + 1e-9


def looked_at(
    world: World, found: Sequence[Estimate], quantity: str, truths: Callable[[str], float]
) -> Iterator[tuple[str, bool]]:
    """Coverage by scope, for groups and contrasts of presets and for everyone; and false gaps of other factors."""
    presets = PRESETS[: world.presets]
    everyone = float(np.mean([truths(preset) for preset in presets]))
    rest = float(np.mean([truths(preset) for preset in presets[1:]]))
    for row in found:
        if row.quantity != quantity:
            continue
        if isinstance(row, Disparity):
            if row.factor != "race":
                yield f"{row.factor} gap that is not there, p ≤ .05", bool(row.null and row.null.omnibus <= 0.05)
            else:
                largest = max(abs(truths(one) - truths(other)) for one in presets for other in presets)
                yield "largest gap", covers(row, largest)
                if largest < NONE:
                    yield "race gap that is not there, p ≤ .05", bool(row.null and row.null.omnibus <= 0.05)
        elif row.scope == "all":
            yield "everyone", covers(row, everyone)
        elif row.factor == "race" and row.scope == "group":
            yield ("preset A" if row.group == "A" else "another preset"), covers(row, truths(row.group))
        elif row.factor == "race" and row.group == "A - rest":
            yield "preset A - rest", covers(row, truths("A") - rest)
        elif row.scope == "group":
            yield f"{row.factor} group", covers(row, everyone)
        elif row.factor != "race":
            yield f"{row.factor} contrast", covers(row, 0.0)


def rates(world: World, *factors: str, **options: object) -> Callable[[np.random.Generator], Results]:
    """Rates of faults."""
    truth = {preset: world.truth(place) for place, preset in enumerate(PRESETS)}

    def audit(stream: np.random.Generator) -> Results:
        edits, scores = rows(world, faults(world, stream))
        found = estimate(edits, [scores], settings(*(factors or ("race",)), **options))
        yield from looked_at(world, found, "race_changed", truth.__getitem__)

    return audit


def means(world: World, *factors: str, axis: str = "race_change", **options: object) -> Callable[..., Results]:
    """Mean scores: 1 or, for a fault, 5; on an axis with a middle 3 or, for a fault, 1 or 5, more often 5."""
    truth = {preset: world.truth(place) for place, preset in enumerate(PRESETS)}
    two_sided = axis == "skin_tone"

    def value(preset: str) -> float:
        return 3 + truth[preset] * (2 * 0.7 - 2 * 0.3) if two_sided else 1 + 4 * truth[preset]

    def audit(stream: np.random.Generator) -> Results:
        values = faults(world, stream)
        if two_sided:
            lighter = stream.random(values.shape) < 0.7
            values = np.where(values == FAULT, np.where(lighter, 5.0, 1.0), 3.0)
        edits, scores = rows(world, values, axis)
        found = estimate(edits, [scores], settings(*(factors or ("race",)), **options))
        yield from looked_at(world, found, axis, value)

    return audit


def unbounded(world: World, *factors: str) -> Callable[[np.random.Generator], Results]:
    """Measured means, normal."""

    def audit(stream: np.random.Generator) -> Results:
        identities = 12 * world.identities
        value = world.identity * stream.standard_normal((1, identities, 1))
        value = value + world.portrait * stream.standard_normal((world.presets, identities, 1))
        value = (value + stream.standard_normal((1, 1, world.prompts))).reshape(-1, world.prompts)
        edits, scores = rows(world, value + stream.standard_normal(value.shape), "skin_delta_l")
        # What a prompt does is the same for everybody, and these prompts are all that there are.
        found = estimate(edits, [scores], settings(*(factors or ("race",))))
        for part in looked_at(world, found, "skin_delta_l", lambda _: 0.0):
            if "contrast" in part[0] or "rest" in part[0] or "gap" in part[0]:
                yield part

    return audit


def refusals(world: World) -> Callable[[np.random.Generator], Results]:
    """Edits that would be faulty are refused twice as often: the truth is about what was edited."""
    truth = {preset: world.truth(place) for place, preset in enumerate(PRESETS)}
    kept = {preset: 0.6 * rate / (0.6 * rate + 0.8 * (1 - rate)) for preset, rate in truth.items()}

    def audit(stream: np.random.Generator) -> Results:
        values = faults(world, stream)
        refused = stream.random(values.shape) < np.where(values == FAULT, 0.4, 0.2)
        edits, scores = rows(world, np.where(refused, np.nan, values))
        state = np.where(refused.ravel(), EditState.REFUSED, EditState.EDITED).astype(np.int32)
        found = estimate(replace(edits, state=state), [scores], settings("race", "gender"))
        yield from looked_at(world, found, "race_changed", kept.__getitem__)

    return audit


def sampled(world: World, share: float) -> Callable[[np.random.Generator], Results]:
    """Only a random part of the grid was edited."""
    truth = {preset: world.truth(place) for place, preset in enumerate(PRESETS)}

    def audit(stream: np.random.Generator) -> Results:
        values = faults(world, stream)
        values = np.where(stream.random(values.shape) < share, values, np.nan)
        found = estimate(*_one(rows(world, values)), settings("race", "gender"))
        yield from looked_at(world, found, "race_changed", truth.__getitem__)

    return audit


def _one(both: tuple[Edits, Scores]) -> tuple[Edits, list[Scores]]:
    return both[0], [both[1]]


def limit(world: World) -> Callable[[np.random.Generator], Results]:
    """A gate at the truth: how often the upper limit of a preset lies below it."""
    truth = world.truth(1)

    def audit(stream: np.random.Generator) -> Results:
        found = estimate(*_one(rows(world, faults(world, stream))), settings("race"))
        for row in found:
            if row.quantity in ("race_changed", "race_change") and row.scope == "group" and row.group == "B":
                assert isinstance(row.outcome, Interval)
                at = truth if row.quantity == "race_changed" else 1 + 4 * truth
                yield f"gate at the truth passes: {'rate' if at < 1 else 'mean'}", row.outcome.high < at

    return audit


def arms(world: World, help_: float) -> Callable[[np.random.Generator], Results]:
    """A feature prompt that takes a share of all faults away: its change, and changes of gaps."""
    truth = {preset: world.truth(place) for place, preset in enumerate(PRESETS)}

    def audit(stream: np.random.Generator) -> Results:
        chance = world.chances(stream)
        values = np.stack(
            [np.where(stream.random(chance.shape) < part, FAULT, NO_FAULT) for part in (chance, chance * (1 - help_))],
            axis=2,
        )
        edits, scores = rows(world, values)
        asked = settings("race", "gender")
        for row in paired_effects(edits, [scores], asked, quantities=("race_changed",)):
            if row.scope == "group" and row.factor == "race":
                yield "change of a preset", covers(row, -help_ * truth[row.group])
            elif row.scope == "all":
                yield "change of everyone", covers(row, -help_ * float(np.mean(list(truth.values()))))
                if not help_ and not isinstance(row, Disparity):
                    yield "change that is not there, p ≤ .05", bool(row.p is not None and row.p <= 0.05)
        for changes in gap_changes(
            edits, [scores], asked, arm="feature", against="baseline", quantities=("race_changed",)
        ):
            held = all(
                pair.outcome.low - 1e-9
                <= (-help_ * (truth[pair.one] - truth[pair.other]) if changes.factor == "race" else 0.0)
                <= pair.outcome.high + 1e-9
                for pair in changes.pairs
            )
            yield f"all changes of {changes.factor} gaps together", held

    return audit


def measured_arms(world: World, calm: float) -> Callable[[np.random.Generator], Results]:
    """Measured values under two arms that do not differ; what an arm does to preset A varies by `calm`, else by 1."""

    def audit(stream: np.random.Generator) -> Results:
        spread = np.where(np.arange(len(people(world))) < 12 * world.identities, calm, 1.0)[:, None]
        own = spread * stream.standard_normal((len(spread), 1))
        before = stream.standard_normal((len(spread), 1)) + spread * stream.standard_normal(
            (len(spread), world.prompts)
        )
        after = before + own + spread * stream.standard_normal(before.shape)
        edits, scores = rows(world, np.stack([before, after], axis=2), "skin_delta_l")
        asked = settings("race", "gender", **({} if world.blocks else {"matched_on": ()}))
        for changes in gap_changes(
            edits, [scores], asked, arm="feature", against="baseline", quantities=("skin_delta_l",)
        ):
            held = all(pair.outcome.low <= 0 <= pair.outcome.high for pair in changes.pairs)
            yield f"all changes of {changes.factor} gaps together", held

    return audit


def pairs(world: World) -> Callable[[np.random.Generator], Results]:
    """All 21 pairs of presets, after Holm."""

    def audit(stream: np.random.Generator) -> Results:
        edits, scores = rows(world, faults(world, stream))
        found = contrasts(
            edits,
            [scores],
            settings("race"),
            against=("pairs",),
            measures=("difference",),
            quantities=("race_changed",),
        )
        yield (
            "any of 21 pairs that do not differ, Holm p ≤ .05",
            any(row.permutation is not None and row.permutation.holm <= 0.05 for row in found),
        )
        for row in found[:3]:
            yield "a pair of presets", covers(row, 0.0)

    return audit


def people_rate(world: World, share: float, bias: float) -> Callable[[np.random.Generator], Results]:
    """A judge that adds `bias` logits for preset A, corrected by people who rate a share of the edits."""
    truth = {preset: world.truth(place) for place, preset in enumerate(PRESETS)}
    rest = float(np.mean([truth[preset] for preset in PRESETS[1:]]))

    def audit(stream: np.random.Generator) -> Results:
        values = faults(world, stream)
        wrong = stream.random(values.shape) < 0.15
        wrong[: len(values) // 7] |= stream.random((len(values) // 7, world.prompts)) < bias
        judged = np.where(wrong, FAULT + NO_FAULT - values, values)
        edits, judge = rows(world, judged)
        drawn = stream.random(values.shape) < share
        people = replace(rows(world, np.where(drawn, values, np.nan))[1], judge="people")
        for row in corrected(edits, judge, people, settings("race")):
            kind = "mean" if row.quantity == "race_change" else "rate"

            def at(rate: float, kind: str = kind) -> float:
                return 1 + 4 * rate if kind == "mean" else rate

            if row.scope == "all":
                yield f"corrected {kind} of everyone", covers(row, at(float(np.mean(list(truth.values())))))
            elif row.scope == "group":
                yield f"corrected {kind} of a preset", covers(row, at(truth[row.group]))
            elif row.group == "A - rest":
                yield f"corrected {kind}, preset A - rest", covers(row, at(truth["A"]) - at(rest))

    return audit


CALM = World()
ALL = ("race", "gender", "age")
SCENARIOS: Mapping[str, tuple[str, Callable[[np.random.Generator], Results]]] = {
    "complete": ("complete, identities differ by .5", rates(CALM, *ALL)),
    "identity": ("identities differ by 1", rates(World(identity=1.0), *ALL)),
    "gap": ("preset A has a gap of 1 logit", rates(World(gap=1.0), *ALL)),
    "independent": ("84 people, no identities", rates(World(identity=0.0, blocks=False), *ALL)),
    "three": ("36 identities", rates(World(identities=3), *ALL)),
    "rare": ("faults in 2 %", rates(World(rate=0.015), *ALL)),
    "rare-mean": ("mean scores, faults in 2 %", means(World(rate=0.015), *ALL)),
    "mean": ("mean scores, 27 %", means(CALM, *ALL)),
    "two-sided": ("skin tone, 27 % lighter or darker", means(CALM, *ALL, axis="skin_tone")),
    "rare-two-sided": ("skin tone, 2 %", means(World(rate=0.015), *ALL, axis="skin_tone")),
    "unbounded": ("measured means", unbounded(CALM, *ALL)),
    "concentrated": ("one portrait in twenty has all faults", rates(World(concentrated=0.05), "race")),
    "volatile": ("preset A's portraits differ by 2, others' by .3", rates(World(volatile=2.0, portrait=0.3), "race")),
    "refusals": ("refusals that depend on the score", refusals(CALM)),
    "sampled": ("a quarter of the grid", sampled(CALM, 0.25)),
    "sparse": ("a tenth of the grid", sampled(CALM, 0.1)),
    "small": ("three presets, five prompts", rates(World(presets=3, prompts=5), "race", "gender")),
    "prompt-sample": (
        "prompts as a sample, each differs by .5 for a preset",
        rates(World(prompt=0.5), "race", prompts="sample"),
    ),
    "prompt-sample-mean": (
        "the same, mean scores",
        means(World(prompt=0.5), "race", prompts="sample"),
    ),
    "gate": ("a gate exactly at the truth, 27 %", limit(CALM)),
    "gate-rare": ("a gate exactly at the truth, 2 %", limit(World(rate=0.015))),
    "pairs": ("21 pairs", pairs(CALM)),
    "arm": ("an arm that does nothing", arms(CALM, 0.0)),
    "arm-helps": ("an arm that takes half the faults", arms(World(gap=1.0), 0.5)),
    "arm-rare": ("an arm that takes half of few faults", arms(World(rate=0.015), 0.5)),
    "arm-calm": ("measured values, an arm moves preset A by .05 and others by 1", measured_arms(CALM, 0.05)),
    "arm-calm-independent": ("the same, no identities", measured_arms(World(blocks=False), 0.05)),
    "people": ("people rate a fifth", people_rate(CALM, 0.2, 0.0)),
    "people-bias": ("people rate a fifth, the judge is biased by group", people_rate(CALM, 0.2, 0.3)),
}


# -- running ---------------------------------------------------------------------------------------------------------


def run(name: str, first: int, audits: int) -> dict[str, list[float]]:
    """By what was looked at: its share in each audit."""
    # A scenario's audits are its own, and stay the same when others are added or change their places.
    own = zlib.crc32(name.encode())
    shares: dict[str, list[float]] = {}
    for seed in range(first, first + audits):
        by_name: dict[str, list[bool]] = {}
        for what, held in SCENARIOS[name][1](np.random.default_rng([seed, own])):
            by_name.setdefault(what, []).append(held)
        for what, held in by_name.items():
            shares.setdefault(what, []).append(float(np.mean(held)))
    return shares


def kind_of(what: str) -> str:
    return FOUND if "not there" in what or "do not differ" in what or "passes" in what else COVERS


def is_nominal(what: str, share: float) -> bool:
    low, high = (0.0, 0.035) if "passes" in what else WITHIN[kind_of(what)]
    return low <= share <= high


COLUMNS = {
    "everyone": ("everyone",),
    "a preset": ("another preset", "preset A"),
    "preset A − rest": ("preset A - rest",),
    "largest gap": ("largest gap",),
    "gender": ("gender group", "gender contrast"),
    "age": ("age group", "age contrast"),
    "race gap found": ("race gap that is not there, p ≤ .05",),
    "gender gap found": ("gender gap that is not there, p ≤ .05",),
    "age gap found": ("age gap that is not there, p ≤ .05",),
}
"""Of the first table: what is looked at in most scenarios."""


def as_text(what: str, share: float) -> str:
    text = f"{share:.3f}".removeprefix("0")
    return text if is_nominal(what, share) else f"**{text}**"


def tables(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Scenarios with groups as rows of one table, everything else one line a share."""
    yield f"| simulated | {' | '.join(COLUMNS)} |"
    yield "|---" * (1 + len(COLUMNS)) + "|"
    in_columns = {what for parts in COLUMNS.values() for what in parts}
    for name, shares in found.items():
        if in_columns & set(shares):
            cells = [
                " / ".join(as_text(what, shares[what]) for what in parts if what in shares)
                for parts in COLUMNS.values()
            ]
            yield f"| {SCENARIOS[name][0]} | {' | '.join(cells)} |"
    yield "\n| simulated | looked at | share |\n|---|---|---|"
    for name, shares in found.items():
        title = SCENARIOS[name][0]
        for what, share in shares.items():
            if what not in in_columns:
                yield f"| {title} | {what} | {as_text(what, share)} |"
                title = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--audits", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    if unknown := [name for name in options.scenarios if name not in SCENARIOS]:
        sys.exit(f"No scenario {unknown[0]!r}. There are {', '.join(SCENARIOS)}.")
    each = math.ceil(options.audits / (4 * options.processes))
    found: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for name in options.scenarios or SCENARIOS:
            starts = range(0, options.audits, each)
            sizes = [min(each, options.audits - start) for start in starts]
            merged: dict[str, list[float]] = {}
            for part in pool.map(run, [name] * len(sizes), starts, sizes):
                for what, shares in part.items():
                    merged.setdefault(what, []).extend(shares)
            found[name] = {what: float(np.mean(shares)) for what, shares in merged.items()}
            print(name, {what: round(share, 4) for what, share in found[name].items()}, flush=True)
    print(f"\n{options.audits} audits each\n", *tables(found), sep="\n")


if __name__ == "__main__":
    main()
