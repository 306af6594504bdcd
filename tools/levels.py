"""Error rates and coverage at twelve portraits a group, matched by design. Simulated, the truth known.

    python tools/levels.py [SCENARIO ...] [--audits N] [--processes N]

Prints the table "At twelve portraits a group" of docs/statistics.md: each line is a share over N simulated audits,
with seeds 0 to N - 1 and 400 replicates. An audit has 84 portraits (7 races × 2 genders × 6 ages, one each; gender ×
age is the block) and 20 prompts. With 1,000 audits a share near .95 is accurate to about ±.014.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

# One thread each: the processes are the parallel part.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from stillme.estimates import (
    Disparity,
    Edits,
    EditState,
    PairedEffect,
    RatingState,
    Scores,
    Settings,
    contrasts,
    estimate,
    holm,
    paired_effects,
)
from stillme.estimates.agreement import choose_informative, corrected
from stillme.estimates.bootstrap import Limits, limits, resample
from stillme.estimates.design import Plan, by_factor
from stillme.estimates.gap_changes import gap_changes
from stillme.estimates.quantities import Columns, Quantity
from stillme.gate.verdicts import Verdict, against_limit, shown_by_holm
from stillme.types import ImageFile, Interval, NotEstimable, Portrait, Prompt

RACES, GENDERS, AGES, PROMPTS = "ABCDEFG", "fm", range(6), 20
FACTORS = ("race", "gender", "age")
Floats = NDArray[np.float64]
Shares = dict[str, float]
MEDIAN = "(median)"
"""Ends the name of a width: a few very wide intervals would move its mean."""


@cache
def portraits() -> tuple[Portrait, ...]:
    """Every combination once."""
    return tuple(
        Portrait(
            id=f"{race}{gender}{age}",
            image=ImageFile(path=Path("none"), sha256=""),
            attributes={"race": race, "gender": gender, "age": str(age)},
            label_origin="simulated",
            licence="CC0-1.0",
            block=f"{gender}{age}",
        )
        for race in RACES
        for gender in GENDERS
        for age in AGES
    )


def attribute(name: str) -> NDArray[np.str_]:
    return np.array([portrait.attributes[name] for portrait in portraits()])


def settings(seed: int, *factors: str) -> Settings:
    return Settings(factors=factors or FACTORS, replicates=400, seed=seed)


def columns(values: Floats, *, arms: tuple[str, ...] = ("baseline",)) -> tuple[Edits, Scores]:
    """Rows of portraits × prompts × arms."""
    full = values.reshape(values.shape + (1,) * (3 - values.ndim))
    portrait, prompt, arm = np.indices(full.shape).reshape(3, -1).astype(np.int32)
    zeros = np.zeros(full.size, dtype=np.int32)
    edits = Edits(
        keys=[f"{number:06d}" for number in range(full.size)],
        portrait=portrait,
        prompt=prompt,
        editor=zeros,
        arm=arm,
        state=zeros + EditState.EDITED,
        image=[""] * full.size,
        portraits=portraits(),
        prompts=tuple(Prompt(id=f"P{n:02d}", text="Do.", category="c", subcategory="s") for n in range(full.shape[1])),
        editors=("editor",),
        arms=arms,
    )
    rated = zeros + RatingState.RATED
    return edits, Scores(judge="judge", axis="race_change", value=full.ravel().astype(float), state=rated)


# A fault is a score of 3 or more (`race_changed`); its rate is set, and portraits differ on the logit scale.
FAULT, FINE = 4.0, 1.0
BLOCK, PERSON = 0.5, 0.7
_POINTS, _RAW = np.polynomial.hermite_e.hermegauss(60)
_WEIGHTS = _RAW / _RAW.sum()


@cache
def intercept(rate: float, spread: float) -> float:
    """The logit whose mean over portraits is this rate."""
    low, high = -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _WEIGHTS @ expit(middle + spread * _POINTS) < rate else (low, middle)
    return low


def faults(
    stream: np.random.Generator, rate: Floats, *, person: float | Floats = PERSON, block: float = BLOCK
) -> Floats:
    """Scores of portraits × prompts where each portrait's expected rate is given."""
    spread = np.hypot(np.broadcast_to(person, 84), block)
    logits = np.array([intercept(float(one), float(wide)) for one, wide in zip(rate, spread, strict=True)])
    blocks, place = np.unique([portrait.block for portrait in portraits()], return_inverse=True)
    logits = logits + stream.normal(0, 1, len(blocks))[place] * block + stream.normal(0, 1, 84) * person
    return np.where(stream.random((84, PROMPTS)) < expit(logits)[:, None], FAULT, FINE)


def holds(outcome: Interval | NotEstimable, truth: float) -> float:
    return float(isinstance(outcome, Interval) and outcome.low - 1e-9 <= truth <= outcome.high + 1e-9)


def rates_where(level: str, factor: str, there: float, elsewhere: float) -> Floats:
    return np.where(attribute(factor) == level, there, elsewhere)


# -- scenarios -------------------------------------------------------------------------------------------------------


def blocks(seed: int, rate: float = 0.27, more: float = 0.13) -> Shares:
    """Twelve blocks, each with all races; one race has more faults."""
    stream = np.random.default_rng(seed)
    edits, scores = columns(faults(stream, rates_where("A", "race", rate + more, rate)))
    wanted = settings(seed, "race")
    wanted = replace(wanted, matched_on=("gender", "age"))
    columned = Columns.of(edits)
    plan = by_factor(columned, "race", wanted)
    ratio = [replace(part, scale="log ratio") for part in plan.comparisons if part.group == "A - rest"]
    plan = replace(plan, comparisons=(*plan.comparisons, *ratio))
    shares: Shares = {}
    for quantity in columned.quantities([scores]):
        if quantity.name not in ("race_changed", "race_change"):
            continue
        unit = 1.0 if quantity.is_rate else FAULT - FINE
        (by_comparison,) = limits(plan, [quantity], wanted)
        for comparison, interval_at in zip(plan.comparisons, by_comparison, strict=True):
            if comparison.scale == "log ratio" and quantity.is_rate:
                shares["ratio of two rates, A - rest"] = holds(interval_at(0.95), float(np.log((rate + more) / rate)))
            elif comparison.group == "A - rest" and comparison.scale == "difference":
                shares[f"difference of {quantity.name}, A - rest"] = holds(interval_at(0.95), more * unit)
                within = interval_at(0.9)
                assert isinstance(within, Interval)
                claimed = -more * unit < within.low and within.high < more * unit
                shares[f"equivalence claimed at the margin, {quantity.name} (should be .05)"] = float(claimed)
            elif comparison.group == "B" and quantity.is_rate:
                shares["rate of one group"] = holds(interval_at(0.95), rate)
    return shares


def rare(seed: int) -> Shares:
    """The same with rare faults: 4 %, and 9 % in one race."""
    return blocks(seed, 0.04, 0.05)


def gender(seed: int) -> Shares:
    """Women have 7.6 points more; each factor is matched on the others."""
    stream = np.random.default_rng(seed)
    shares: Shares = {}
    for name, more in (("7.6 points", 0.076), ("no gap", 0.0)):
        edits, scores = columns(faults(stream, rates_where("f", "gender", 0.27 + more, 0.27), block=0.0))
        wanted = replace(settings(seed, "gender"), matched_on=("race", "age"))
        (found,) = [
            contrast
            for contrast in contrasts(
                edits, [scores], wanted, against=("rest",), measures=("difference",), quantities=("race_changed",)
            )
            if contrast.level == "f"
        ]
        assert found.permutation
        shares[f"{name}: found by permutation"] = float(found.permutation.p <= 0.05)
        shares[f"{name}: interval holds the truth"] = holds(found.outcome, more)
    return shares


def volatile(seed: int) -> Shares:
    """Six ages of fourteen portraits would do; here one intersection of six portraits varies much more than others."""
    stream = np.random.default_rng(seed)
    own = (attribute("race") == "A") & (attribute("gender") == "f")
    person = np.where(own, 2.0, 0.3)
    edits, scores = columns(faults(stream, np.full(84, 0.2), person=person, block=0.0))
    wanted = settings(seed).comparing("race × gender")
    columned = Columns.of(edits.crossed(("race", "gender")))
    (quantity,) = [part for part in columned.quantities([scores]) if part.name == "race_changed"]
    plan = by_factor(columned, "race × gender", wanted)
    (resampled,) = resample(plan, [quantity], wanted)
    groups = dict(zip(plan.levels, resampled.outcomes, strict=False))
    shares = {"rate of the volatile group of 6": holds(groups["A × f"], 0.2)}
    shares["rate of a calm group of 6"] = holds(groups["B × f"], 0.2)
    shares["volatile: mean width"] = groups["A × f"].high - groups["A × f"].low  # type: ignore[union-attr]
    shares["calm: mean width"] = groups["B × f"].high - groups["B × f"].low  # type: ignore[union-attr]
    return shares


@dataclass(frozen=True)
class GateNumber:
    """A number of a gate, its limit, and its interval at any confidence."""

    at: Callable[[float], Interval | NotEstimable]
    limit: float

    def verdict(self, confidence: float = 0.95) -> Verdict:
        """By its interval."""
        return against_limit(self.at(confidence), "<=", self.limit)[0]


def failed(numbers: Sequence[GateNumber]) -> dict[str, set[int]]:
    """Numbers that fail, each by itself and after Holm."""
    alone = {place for place, number in enumerate(numbers) if number.verdict() is Verdict.FAILED}

    def still(waiting: Set[int], confidence: float) -> set[int]:
        return {place for place in waiting if numbers[place].verdict(confidence) is Verdict.FAILED}

    return {"each by itself": alone, "after Holm": shown_by_holm(alone, len(numbers), 0.95, still)}


@cache
def by_race() -> tuple[Columns, Plan]:
    """Sorted and planned once: of these 84 portraits only the faults change."""
    columned = Columns.of(columns(np.ones((84, PROMPTS)))[0])
    return columned, by_factor(columned, "race", replace(settings(0, "race"), matched_on=("gender", "age")))


def at_limit(seed: int) -> Shares:
    """One number exactly at its limit: the gate's verdict, coverage and width; one race has 10 points more faults."""
    columned, plan = by_race()
    stream = np.random.default_rng(seed)
    shares: Shares = {}
    for name, rate, person in (
        ("27 %", 0.27, PERSON),
        ("4 %", 0.04, PERSON),
        ("4 %, portraits differ more", 0.04, 1.2),
    ):
        scores = faults(stream, rates_where("A", "race", rate + 0.1, rate), person=person)
        hits = (scores == FAULT).sum(axis=1, dtype=np.float64)[columned.places]
        quantity = Quantity(
            name="race_changed",
            editor="editor",
            arm="baseline",
            judge="judge",
            sums=hits,
            counts=np.full(84, float(PROMPTS)),
            squares=hits,
            excluded={},
            bounds=(0.0, 1.0),
            is_rate=True,
        )
        (by_comparison,) = limits(plan, [quantity], settings(seed, "race"))
        intervals = {part.group: at for part, at in zip(plan.comparisons, by_comparison, strict=True)}
        for group, limit in (("A", rate + 0.1), ("B", rate), ("A - rest", 0.1)):
            number = GateNumber(intervals[group], limit)
            for verdict in (Verdict.PASSED, Verdict.FAILED):
                shares[f"{name}, {group}: {verdict}"] = float(number.verdict() is verdict)
            outcome = number.at(0.95)
            assert isinstance(outcome, Interval)
            shares[f"{name}, {group}: interval holds the truth"] = holds(outcome, limit)
            shares[f"{name}, {group}: width"] = outcome.high - outcome.low
        within = intervals["A - rest"](0.9)
        assert isinstance(within, Interval)
        shares[f"{name}: equivalence claimed at the margin (should be .05)"] = float(
            -0.1 < within.low < within.high < 0.1
        )
    return shares


def gate(seed: int) -> Shares:
    """A group's rate exactly at its limit; one rule, and several independent ones together."""
    stream = np.random.default_rng(seed)
    shares: Shares = {}
    for name, rate in (("27 %", 0.27), ("4 %", 0.04)):
        audits: list[dict[str, Limits]] = []
        for number in range(4):
            edits, scores = columns(faults(stream, rates_where("A", "race", rate + 0.1, rate)))
            wanted = replace(settings(4 * seed + number, "race"), matched_on=("gender", "age"))
            columned = Columns.of(edits)
            (quantity,) = [part for part in columned.quantities([scores]) if part.name == "race_changed"]
            plan = by_factor(columned, "race", wanted)
            (by_comparison,) = limits(plan, [quantity], wanted)
            audits.append({part.group: at for part, at in zip(plan.comparisons, by_comparison, strict=True)})
        for what, group, limit in (("a group's rate", "B", rate), ("a contrast", "A - rest", 0.1)):
            at_limit = [GateNumber(audit[group], limit) for audit in audits]
            for verdict in (Verdict.PASSED, Verdict.FAILED):
                shares[f"{what} at its limit of {name}: {verdict}"] = float(at_limit[0].verdict() is verdict)
            for how, places in failed(at_limit).items():
                shares[f"{what} at its limit of {name}: any of four rules failed, {how}"] = float(bool(places))
            kept = [at_limit[0], *(GateNumber(number.at, limit + 0.3) for number in at_limit[1:])]
            passed = all(number.verdict() is Verdict.PASSED for number in kept)
            shares[f"{what} at its limit of {name}, three others far below theirs: all passed"] = float(passed)
        groups = [GateNumber(audit[group], rate) for audit in audits for group in RACES[1:]]
        for how, places in failed(groups).items():
            shares[f"four rules of six groups each, all at {name}: any failed, {how}"] = float(bool(places))
        broken = [GateNumber(audit["A"], limit) for audit, limit in zip(audits, (rate, *[0.9] * 3), strict=True)]
        for how, places in failed(broken).items():
            shares[f"a rate 10 points above its limit of {name}, three kept: failed, {how}"] = float(bool(places))
    return shares


def panels(seed: int) -> Shares:
    """An arm that helps everybody alike on the logit scale, four quantities: does any panel say "some more"?"""
    stream = np.random.default_rng(seed)
    p: list[float] = []
    single: list[float] = []
    for number in range(4):
        base, treated = (faults(stream, np.full(84, rate), block=0.0) for rate in (0.27, 0.2))
        edits, scores = columns(np.stack([base, treated], axis=2), arms=("baseline", "feature"))
        effects = paired_effects(edits, [scores], settings(4 * seed + number, "race"), quantities=("race_changed",))
        (gap,) = [effect for effect in effects if isinstance(effect, Disparity)]
        assert gap.null
        p.append(gap.null.omnibus)
        single.append(float(gap.null.omnibus <= 0.05))
    return {
        "one panel says that groups change differently": float(np.mean(single)),
        "any of four, after Holm": float(min(holm(p)) <= 0.05),
        "any of four, without": float(min(p) <= 0.05),
    }


def compare(seed: int) -> Shares:
    """Two editors on the same portraits: the changes of all pairs of groups together."""
    shares: Shares = {}
    for name, gap, noise in (
        ("no gap, both alike", 0.0, (0.0, 0.0)),
        ("no gap, second editor noisy", 0.0, (0.0, 1.5)),
        ("no gap, first editor noisy", 0.0, (1.5, 0.0)),
        ("17 points appear", 0.17, (0.0, 0.0)),
        ("31 points appear", 0.31, (0.0, 0.0)),
    ):
        stream = np.random.default_rng([seed, int(1000 * gap), int(10 * noise[0]), int(10 * noise[1])])
        shared = stream.normal(0, PERSON, 84)
        values: list[Floats] = []
        truth = np.zeros((2, 84))
        for editor, own in enumerate(noise):
            rate = rates_where("A", "race", 0.2 + (gap if editor else 0.0), 0.2)
            truth[editor] = rate
            spread = float(np.hypot(PERSON, own))
            logits = np.array([intercept(float(one), spread) for one in rate]) + shared + stream.normal(0, 1, 84) * own
            values.append(np.where(stream.random((84, PROMPTS)) < expit(logits)[:, None], FAULT, FINE))
        edits, scores = columns(np.stack(values, axis=2), arms=("first", "second"))
        wanted = replace(settings(seed, "race"), matched_on=("gender", "age"))
        (change,) = gap_changes(edits, [scores], wanted, arm="second", against="first", quantities=("race_changed",))
        true_change = {level: float((truth[1] - truth[0])[attribute("race") == level].mean()) for level in RACES}
        all_hold = all(holds(pair.outcome, true_change[pair.one] - true_change[pair.other]) for pair in change.pairs)
        shares[f"{name}: the intervals of all 21 pairs hold the truth"] = float(all_hold)
        shares[f"{name}: a gap is said to have grown"] = float(change.verdict == "grew")
        shares[f"{name}: a gap is said to have shrunk"] = float(change.verdict == "shrank")
    return shares


def people(seed: int) -> Shares:
    """People rate 300 of 1,680 edits, a judge that rates too high all of them: corrected means."""
    stream = np.random.default_rng(seed)
    latent = stream.normal(0, 0.7, 84)[:, None] + stream.normal(0, 1, (84, PROMPTS))
    cuts = np.array([0.8, 1.4, 2.0, 2.6])
    judged = 1.0 + np.searchsorted(cuts, latent + 0.4 + stream.normal(0, 0.7, latent.shape))
    rated = 1.0 + np.searchsorted(cuts, latent + stream.normal(0, 0.7, latent.shape))
    edits, judge = columns(judged)
    seen = np.zeros(latent.size, dtype=bool)
    seen[stream.choice(latent.size, 300, replace=False)] = True
    state = np.where(seen, RatingState.RATED, RatingState.MISSING).astype(np.int32)
    human = Scores(judge="people", axis=judge.axis, value=np.where(seen, rated.ravel(), np.nan), state=state)
    chances = -np.diff([1.0, *(norm.sf(cuts / np.sqrt(0.7**2 + 1 + 0.7**2))), 0.0])
    truth = {"race_change": float(chances @ np.arange(1, 6)), "race_changed": float(chances[2:].sum())}
    wanted = replace(settings(seed, "race"), matched_on=("gender", "age"))
    shares: Shares = {}
    for found in corrected(edits, judge, human, wanted):
        if found.quantity in truth and (found.scope == "all" or found.group in ("B", "B - rest")):
            where = {"all": "everyone", "group": "one group", "contrast": "one group - rest"}[found.scope]
            true = 0.0 if found.scope == "contrast" else truth[found.quantity]
            shares[f"corrected {found.quantity}, {where}"] = holds(found.outcome, true)
    return shares


def informative(seed: int) -> Shares:
    """People rate 300 of 1,680 edits, drawn alike or likelier where two models disagree; 20 % are hard to judge."""
    stream = np.random.default_rng(seed)
    latent = stream.normal(0, 0.7, 84)[:, None] + stream.normal(0, 1, (84, PROMPTS))
    cuts = np.array([0.8, 1.4, 2.0, 2.6])
    error = np.where(stream.random(latent.shape) < 0.2, 1.5, 0.15)
    human = 1.0 + np.searchsorted(cuts, latent)
    edits, one = columns(1.0 + np.searchsorted(cuts, latent + error * stream.normal(0, 1, latent.shape)))
    _, two = columns(1.0 + np.searchsorted(cuts, latent + error * stream.normal(0, 1, latent.shape)))
    chances = -np.diff([1.0, *(norm.sf(cuts / np.sqrt(0.7**2 + 1))), 0.0])
    truth = float(chances @ np.arange(1, 6))
    chosen = choose_informative(edits, [one, two], 300, stream, factor="race")
    alike = np.full(len(edits), 300 / len(edits))
    uniform = np.sort(stream.choice(len(edits), 300, replace=False))
    shares: Shares = {}
    for name, drawn, chance in (("alike", uniform, alike), ("informative", chosen.rows, chosen.chances)):
        seen = np.zeros(len(edits), dtype=bool)
        seen[drawn] = True
        state = np.where(seen, RatingState.RATED, RatingState.MISSING).astype(np.int32)
        people = Scores(judge="people", axis=one.axis, value=np.where(seen, human.ravel(), np.nan), state=state)
        wanted = replace(settings(seed, "race"), matched_on=("gender", "age"))
        for found in corrected(edits, one, people, wanted, quantities=("race_change",), chances=chance):
            if found.scope == "all" or found.group == "B":
                where = "everyone" if found.scope == "all" else "one group"
                assert isinstance(found.outcome, Interval)
                shares[f"{name}, {where}: interval holds the truth"] = holds(found.outcome, truth)
                # What sampling alone adds to the judge's error: against all edits rated by people.
                everything = human if found.scope == "all" else human[attribute("race") == "B"]
                shares[f"{name}, {where}: squared error of what people would say of all"] = (
                    found.outcome.value - float(everything.mean())
                ) ** 2
    return shares


def asymmetry(seed: int) -> Shares:
    """An arm that lowers the rate by 10 points for all and by 20 for one race."""
    stream = np.random.default_rng(seed)
    before = faults(stream, np.full(84, 0.4), block=0.0)
    after = faults(stream, rates_where("A", "race", 0.2, 0.3), block=0.0)
    edits, scores = columns(np.stack([before, after], axis=2), arms=("baseline", "feature"))
    wanted = replace(settings(seed, "race"), matched_on=("gender", "age"))
    effects = {
        effect.group: effect
        for effect in paired_effects(edits, [scores], wanted, quantities=("race_changed",))
        if isinstance(effect, PairedEffect)
    }
    return {
        "a group's change": holds(effects["B"].outcome, -0.1),
        "the asymmetry, A - rest": holds(effects["A - rest"].outcome, -0.1),
        "everyone's change": holds(effects[""].outcome, -0.1 - 0.1 / 7),
    }


def disparity(seed: int) -> Shares:
    """Max - min: no gap, and one of 13 points."""
    shares: Shares = {}
    for name, more in (("no gap", 0.0), ("13 points", 0.13)):
        stream = np.random.default_rng([seed, int(100 * more)])
        edits, scores = columns(faults(stream, rates_where("A", "race", 0.27 + more, 0.27)))
        wanted = replace(settings(seed, "race"), matched_on=("gender", "age"))
        (found,) = [
            part
            for part in estimate(edits, [scores], wanted)
            if isinstance(part, Disparity) and part.quantity == "race_changed"
        ]
        assert found.null
        shares[f"{name}: interval of max - min holds the truth"] = holds(found.outcome, more)
        shares[f"{name}: found by permutation, all groups"] = float(found.null.omnibus <= 0.05)
    return shares


SCENARIOS: dict[str, Callable[[int], Shares]] = {
    scenario.__name__: scenario
    for scenario in (
        blocks,
        rare,
        gender,
        volatile,
        disparity,
        asymmetry,
        people,
        informative,
        compare,
        at_limit,
        gate,
        panels,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", default=[], help=", ".join(SCENARIOS))
    parser.add_argument("--audits", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.processes) as pool:
        for name in asked.scenarios or SCENARIOS:
            results = list(pool.map(SCENARIOS[name], range(asked.audits), chunksize=10))
            print(f"{name}: {SCENARIOS[name].__doc__} ({asked.audits:,} audits)")
            for line in results[0]:
                middle = np.median if line.endswith(MEDIAN) else np.mean
                print(f"  {line:<75}{middle([result[line] for result in results]):.4f}", flush=True)


if __name__ == "__main__":
    main()
