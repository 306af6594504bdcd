"""The alarm: as rare as stated while a judge is as good as its calibration, quick when it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import pytest

from stillme.api.pipeline import Ended, RunOptions, run_audit
from stillme.core.rubric import load_limits
from stillme.findings.gate import Asked, Verdict, gate
from stillme.findings.gate.verdict_text import as_text
from stillme.findings.tables.analyses import analyse
from stillme.runs import RecordedRun
from stillme.runs.control_pairs.asking import drawn
from stillme.runs.control_pairs.reading import (
    FALSE_ALARMS,
    Chart,
    Charts,
    Expectations,
    alarm_probability,
    limit_for,
    moved,
)
from stillme.runs.status import status_of
from tests.control_pairs.conftest import AXES, Knowing, Make


def simulated(acceptable: Sequence[float], limit: int, errors: Sequence[float], runs: int) -> float:
    """How often the chart reaches its limit."""
    rng = np.random.default_rng(20)
    alarms = 0
    for _ in range(runs):
        level = 0
        for rate, wrong in zip(acceptable, rng.random(len(errors)) < errors, strict=True):
            level = moved(level, rate, error=bool(wrong))
            if level >= limit:
                alarms += 1
                break
    return alarms / runs


@pytest.mark.parametrize("truly", [1.0, 2.0])
def test_the_exact_probability_is_that_of_simulated_runs(truly: float):
    acceptable = [0.1, 0.3, 0.2, 0.05] * 15
    errors = [min(1.0, truly * rate) for rate in acceptable]
    exact = alarm_probability(acceptable, 70, errors)
    assert simulated(acceptable, 70, errors, 4000) == pytest.approx(exact, abs=0.02)
    assert 0.01 < exact < 0.99


@pytest.mark.parametrize("rates", [[0.05] * 30, [0.3, 0.1] * 100, [0.9] * 20, [0.2]])
def test_the_limit_is_the_lowest_that_keeps_the_false_alarm_rate(rates: list[float]):
    limit = limit_for(rates, 0.005)
    assert alarm_probability(rates, limit) <= 0.005
    assert limit == 1 or alarm_probability(rates, limit - 1) > 0.005


def delays(errors: float, bad_from: int, runs: int, count: int = 60) -> list[int]:
    """How many known pairs after `bad_from` the alarm takes; -1 for none. Before, errors are just acceptable.

    A tenth of the pairs is answered out of order, as with questions that are asked at the same time.
    """
    expected, rng, pairs = Expectations(), np.random.default_rng(3), drawn(AXES, 0, "a judge")
    rates = [expected.acceptable(known.truths(AXES)) for known, _ in zip(pairs, range(count), strict=False)]
    limits = Charts.planned((known for known, _ in zip(drawn(AXES, 0, "a judge"), rates, strict=False)), AXES, expected)
    return [_delay(rates, Charts(limits.limits), errors, bad_from, rng) for _ in range(runs)]


def _delay(
    rates: Sequence[dict[Chart, float]], charts: Charts, errors: float, bad_from: int, rng: np.random.Generator
) -> int:
    order = np.argsort(np.arange(len(rates)) + 6 * (rng.random(len(rates)) < 0.1))
    for asked, place in enumerate(order):
        for chart, rate in rates[place].items():
            wrong = rng.random() < (rate if asked < bad_from else max(rate, errors))
            charts.add(chart, rate, error=wrong)
        if charts.alarms:
            return asked + 1 - bad_from if asked >= bad_from else -1
    return -1


def test_false_alarms_are_as_rare_as_stated_also_out_of_order():
    alarms = sum(delay != -1 for delay in delays(1.0, bad_from=0, runs=1))
    assert alarms == 1, "the count below can find alarms"
    false = sum(delay > 0 for delay in delays(0.0, bad_from=0, runs=3000)) / 3000
    assert 0 < false <= FALSE_ALARMS + 2 * (FALSE_ALARMS / 3000) ** 0.5


def test_a_judge_that_turns_bad_is_caught_within_as_many_pairs_as_the_docs_state():
    caught = np.array(delays(0.9, bad_from=30, runs=500))
    assert (caught > 0).mean() > 0.97
    assert np.median(caught[caught > 0]) <= 11


def calibration(sensitivity: float, false_alarm: float, portraits: int = 40) -> dict[str, object]:
    def share(value: float) -> dict[str, float]:
        return {"value": value, "low": value, "high": value, "portraits": portraits}

    result = {"sensitivity": share(sensitivity), "false_alarm": share(false_alarm)}
    return {"axes": {axis: {"everyone": result} for axis in AXES}}


def test_what_is_acceptable_follows_the_calibration_and_its_uncertainty():
    changed = {"skin_tone": "changed"}
    by_limits = Expectations().acceptable(changed)["missed"]
    assert by_limits == pytest.approx(1 - load_limits().axes["skin_tone"].sensitivity)
    many, few = (Expectations(calibration(0.95, 0.0, count)).acceptable(changed)["missed"] for count in (400, 10))
    assert 0.05 < many < few, "ten portraits tell less than four hundred"
    same = {"skin_tone": "unchanged", "age_change": "unchanged"}
    assert Expectations().acceptable(same)["false_alarms"] == pytest.approx(0.15), "either may err"


def test_a_judge_that_turns_bad_halfway_is_told_of_everywhere(make: Make):
    audit, judge = make(share=0.5)
    judge.wrong_from = 60
    said: list[str] = []
    summary = run_audit(audit, RunOptions(say=said.append))
    (alarm,) = [line for line in said if "failing its control pairs" in line]
    assert re.search(r"knowing is failing its control pairs \(\d+ of \d+ wrong\)\. Do not rely on its scores\.", alarm)
    assert "more than the limits of calibration allow" in alarm
    assert summary.ended is Ended.COMPLETE
    assert summary.totals.to_retry == 0
    assert f"  warning: {summary.control_pairs[0].alarm}" in summary.as_text().splitlines()
    assert summary.as_json()["alarms"] == [summary.control_pairs[0].alarm]
    with RecordedRun.open(audit.folder) as run:
        status = status_of(run)
        written = analyse(run, only=["control_pairs"])["control_pairs"]
    assert "warning: knowing is failing its control pairs" in status.as_text()
    assert json.loads(json.dumps(status.as_json()))["alarms"] == summary.as_json()["alarms"]
    assert written.rows > 8
    assert "lighter" in written.path.read_text("utf-8")
    page = (audit.folder / "report.html").read_text("utf-8")
    assert page.count("knowing is failing its control pairs") >= 2, "the section and the caveat"
    text = re.sub(r"<[^>]+>", "", page)
    assert re.search(r"Cannot tell: judge knowing failed its control pairs \(\d+ of \d+\)", text)
    with RecordedRun.open(audit.folder) as run:
        decided = gate(run, Asked(rules=["success >= 0"], allow_uncalibrated=True))
    assert (decided.outcome, decided.exit_code) == (Verdict.NO_DATA, 3)
    assert "the judge failed its control pairs" in decided.decisions[0].checks[0].reason
    told = as_text(decided)
    assert told.count("failed its control pairs") == 1
    assert "stillme calibrate" not in told, "no calibration makes up for it"
    assert "No group stands out" not in text, "by no judge that may speak"


def test_a_good_judge_raises_no_alarm_and_is_described_in_a_sentence(make: Make):
    audit, judge = make(share=0.5)
    summary = run_audit(audit)
    (answers,) = summary.control_pairs
    assert answers.alarm == ""
    assert answers.answered == len(judge.hidden)
    assert str(answers).startswith(f"In this run knowing noticed {answers.changes.right} of {answers.changes.right} ")
    assert answers.unchanged.right == answers.unchanged.answers > 30
    assert {row.tone for row in answers.by_axis} == {"everyone", "darker", "medium", "lighter"}
    assert not {row.axis for row in answers.by_axis} - {"skin_tone", "race_change", "gender_change", "age_change"}


def test_an_alarm_stops_the_judge_where_that_is_asked_for(make: Make):
    audit, judge = make(share=0.5, stop=True)
    judge.wrong_from = 0
    summary = run_audit(audit)
    assert summary.ended is Ended.STOPPED
    assert len(judge.asked) < 120
    assert "knowing is failing its control pairs" in summary.tallies[-1].reason
    again, other = make(judge=Knowing(), share=0.5, stop=True)
    assert run_audit(again).ended is Ended.STOPPED
    assert not other.asked, "not before somebody has looked"
    onwards, third = make(judge=Knowing(), share=0.5)
    assert run_audit(onwards).ended is Ended.COMPLETE
    assert third.asked
