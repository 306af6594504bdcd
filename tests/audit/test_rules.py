"""The grammar of a gate's rules."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.audit.rules import Rule, parse_rule
from stillme.core.errors import StillmeError
from stillme.core.types import Interval, NotEstimable
from stillme.findings.gate.verdicts import Verdict, against_limit

words = st.text(min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    statistic = draw(st.sampled_from(["mean", "group", "disparity", "contrast"]))
    grouped = statistic != "mean"
    factor = draw(words) if grouped and draw(st.booleans()) else ""
    chosen = draw(words) if statistic in ("group", "contrast") and draw(st.booleans()) else ""
    optional = st.one_of(st.just(""), words)
    return Rule(
        quantity=draw(words),
        statistic=statistic,
        factor=factor,
        group=chosen,
        editor=draw(optional),
        judge=draw(optional),
        arm=draw(optional),
        sign=draw(st.sampled_from(["<=", ">="])),
        limit=draw(numbers) + 0.0,
    )


@given(rules())
def test_a_rule_reads_as_it_is_written(rule: Rule):
    assert parse_rule(str(rule)) == rule


@given(st.text())
def test_any_text_is_a_rule_or_one_sentence(text: str):
    try:
        said, parsed = "", parse_rule(text)
    except StillmeError as error:
        said, parsed = str(error), None
    assert parse_rule(str(parsed)) == parsed if parsed else repr(text) in said


OF_FLUX: dict[str, Any] = {"editor": "flux.2", "judge": "ensemble (mean)"}
FEATURE: dict[str, Any] = {"arm": "feature", "sign": ">="}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("race_change_rate.disparity<=0.05", Rule(quantity="race_change_rate", statistic="disparity", limit=0.05)),
        ("success.rate >= 90 %", Rule(quantity="success", sign=">=", limit=0.9)),
        ("success@race <= .5", Rule(quantity="success", statistic="group", factor="race", limit=0.5)),
        (
            'skin_lightened#"Southeast Asian" editor=flux.2 judge="ensemble (mean)" <= 7%',
            Rule(quantity="skin_lightened", statistic="group", group="Southeast Asian", limit=0.07, **OF_FLUX),
        ),
        (
            "skin_delta_l.contrast@race#20-29 arm=feature>=-2e0",
            Rule(quantity="skin_delta_l", statistic="contrast", factor="race", group="20-29", limit=-2.0, **FEATURE),
        ),
    ],
)
def test_rules_as_people_write_them(text: str, rule: Rule):
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a rule"),
        ("success < 0.9", "is not a rule"),
        ("success <= much", "is not a rule"),
        ("success.dispariy <= 1", "Did you mean 'disparity'?"),
        ("success.mean@race <= 1", "mean and rate are over everyone"),
        ("success.disparity@race#a <= 1", "between all groups"),
        ("success editors=a <= 1", "Did you mean 'editor'?"),
        ("success editor=a editor=b <= 1", "given twice"),
    ],
)
def test_a_mistake_says_what_to_write(text: str, said: str):
    with pytest.raises(StillmeError, match=said.replace("?", r"\?")):
        parse_rule(text)


@given(numbers, st.floats(0, 1e6), st.floats(0, 1e6), numbers, st.sampled_from(["<=", ">="]))
def test_a_verdict_is_as_sure_as_the_interval(value: float, below: float, above: float, limit: float, sign: str):
    outcome = Interval(value=value, low=value - below, high=value + above, confidence=0.95, method="")
    verdict, reason = against_limit(outcome, sign, limit)
    slack = 1e-8 * max(1.0, abs(limit))
    ends = [outcome.low - limit, outcome.high - limit]
    keeps = [end <= slack if sign == "<=" else end >= -slack for end in ends]
    breaks = [end > -slack if sign == "<=" else end < slack for end in ends]
    if verdict is Verdict.PASSED:
        assert all(keeps)
    elif verdict is Verdict.FAILED:
        assert all(breaks)
    else:
        assert any(keeps)
        assert any(breaks)
        assert reason
    if not any(math.isclose(end, 0, abs_tol=2 * slack) for end in ends):
        assert (verdict is Verdict.PASSED) == all(keeps)


def test_without_data_nothing_passes_and_nothing_fails():
    assert against_limit(NotEstimable(reason="one portrait"), "<=", 1) == (Verdict.NO_DATA, "one portrait")
    inside = Interval(value=0, low=0, high=0, confidence=0.95, method="")
    for sign in ("<=", ">="):
        assert against_limit(inside, sign, 1, incomplete="unfinished") == (Verdict.NO_DATA, "unfinished")
        assert against_limit(inside, sign, 1, unvalidated="failed") == (Verdict.INCONCLUSIVE, "failed")
