"""docs/verdicts.md against the code: every sentence of the first screen is there, and every one there is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.core.rubric import RACE
from stillme.estimates import EditState, RatingState
from stillme.estimates.directions import Group, Tallies
from stillme.estimates.headlines import CONTROL_PAIRS, blind_on
from stillme.report import ReportData
from stillme.report.findings import find
from stillme.runs.readings import Readings
from tests.report.planted import LICENSED, again, planted, unevenly_answered

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
EVERYONE = dict.fromkeys("ABE", 0.5)
PASSED = {"meter": dict.fromkeys(LICENSED["meter"], "passed")}


def listed() -> dict[str, tuple[str, re.Pattern[str]]]:
    """By sentence: the answer it belongs to, and what matches it."""
    table = PAGE.read_text("utf-8").partition("<!-- sentences -->")[2].partition("<!-- end of sentences -->")[0]
    rows = re.findall(r"^\| (No|Yes|Cannot tell|any) \| `(.+?)` \|", table, flags=re.MULTILINE)
    assert rows
    return {text: (answer, re.compile(re.sub(r"\\\{\w+\\\}", "(.+?)", re.escape(text)))) for answer, text in rows}


def _state(data: ReportData, rows: slice, state: EditState) -> ReportData:
    changed = data.edits.state.copy()
    changed[rows] = state
    return again(data, edits=replace(data.edits, state=changed))


def _ratings(data: ReportData, rows: slice, state: RatingState) -> ReportData:
    scores = [replace(score, state=score.state.copy()) for score in data.scores]
    for score in scores:
        score.state[rows] = state
    return replace(data, scores=tuple(scores))


def directed(data: ReportData) -> Readings:
    """Every edit of A appears to be B, and no unedited portrait of A does."""
    labels = np.array([portrait.attributes["preset"] for portrait in data.edits.portraits])
    before = np.stack([labels == "A", labels == "B", labels != "B"], axis=1).astype(float)
    after = np.where((labels == "A")[:, None], np.array([0.0, 1.0, 0.0]), before)
    nothing = np.zeros(len(labels))
    tally = Tallies(
        editor=data.edits.editors[0],
        arm=data.main_arm,
        judge="reader",
        axis=RACE,
        targets=("A", "B", "not B"),
        read=2 * after,
        edits=nothing + 2,
        unsure=nothing,
        control_read=2 * before,
        controls=nothing + 2,
        control_unsure=nothing,
    )
    groups = (
        Group(name="not B", members=labels == "A", targets=("B",), pooled=True),
        Group(name="B", members=labels == "B", targets=("not B",), pooled=True),
    )
    return Readings(
        attribute="preset",
        races=("A", "B"),
        reference="B",
        tallies=(tally,),
        groups={RACE: groups},
        blocks=np.arange(len(labels)),
        unread=0,
        unedited=0,
        transitions=(),
        counts=(),
        moved={},
    )


def _audits() -> Iterator[ReportData]:
    """One for every sentence."""
    harmful = planted(unedited={"E": 0.7}, lightened={"A": 1.0})
    yield harmful
    yield replace(harmful, standing={})
    yield planted(unedited={"E": 0.7}, lightened={"A": 1.0}, editors=("one", "two", "three", "four"))
    yield planted(unedited=EVERYONE)
    yield planted(per_group=150, groups=("A", "B"))
    yield unevenly_answered()
    yield planted(per_group=12)
    yield planted(per_group=4, lightened={"A": 0.5})
    yield planted(axes=("skin_tone",), lightened={"A": 0.5}, standing=PASSED)
    for state in (EditState.REFUSED, EditState.FAILED, EditState.MISSING):
        yield planted(states=dict.fromkeys("ABE", state))
    yield planted(states={"A": EditState.REFUSED, "B": EditState.FAILED, "E": EditState.FAILED})
    yield planted(states={"A": EditState.REFUSED, "B": EditState.MISSING, "E": EditState.MISSING})
    yield planted(states={"E": EditState.REFUSED})
    yield planted(states={"E": EditState.FAILED})
    yield _state(harmful, slice(0, 1), EditState.MISSING)
    yield _ratings(harmful, slice(0, 10), RatingState.MISSING)
    for rating in (RatingState.ABSTAINED, RatingState.FAILED, RatingState.MISSING):
        yield planted(rating=rating)
    yield planted(axes=())
    yield planted(groups=("A",))
    yield planted(prompts=0)
    yield planted(per_group=1, groups=("A", "B"))
    yield planted(unedited={"E": 0.7}, standing={"meter": dict.fromkeys(LICENSED["meter"], "failed")})
    blind = PASSED["meter"] | {"identity_distance": blind_on(["darker"])}
    yield planted(standing={"meter": blind}, per_group=150, groups=("A", "B"))
    caught = {"meter": {**LICENSED["meter"], CONTROL_PAIRS: "11 of 16"}}
    yield replace(harmful, standing=caught)
    both = (*harmful.scores, *(replace(score, judge="second") for score in harmful.scores))
    yield again(harmful, scores=both, standing={**caught, "second": LICENSED["meter"]})
    yield planted(unedited={"B": 0.6, "E": 0.6}, lightened={"A": 0.9})
    means = planted(axes=("visible_change", "identity_distance"), standing=PASSED)
    only_means = [one for one in means.estimates if one.quantity in ("identity_distance", "unchanged")]
    yield replace(means, estimates=tuple(only_means))
    yield planted(per_group=400, groups=("A", "B"), unedited={"A": 0.045, "B": 0.045})
    equal = planted(per_group=150, groups=("A", "B"))
    yield replace(equal, readings=directed(equal))
    yield replace(harmful, readings=directed(harmful))
    small = {"unchanged": 0.4, "skin_lightened": 0.4, "rate": 0.4}
    yield replace(harmful, settings=replace(harmful.settings, smallest_effects=small))


@pytest.fixture(scope="module")
def said() -> set[tuple[str, str]]:
    """Every answer with each of its sentences."""
    pairs: set[tuple[str, str]] = set()
    for data in _audits():
        for answer in find(data).answers:
            assert answer.sentences
            pairs |= {(answer.verdict, sentence) for sentence in (*answer.sentences, *answer.remarks)}
    return pairs


def test_every_sentence_is_on_the_page(said: set[tuple[str, str]]):
    patterns = listed()
    for verdict, sentence in said:
        fitting = [answer for answer, pattern in patterns.values() if pattern.fullmatch(sentence)]
        assert verdict in [answer.lower() for answer in fitting] or "any" in fitting, (verdict, sentence)


def test_no_sentence_on_the_page_is_never_said(said: set[tuple[str, str]]):
    sentences = [sentence for _, sentence in said]
    unsaid = [text for text, (_, pattern) in listed().items() if not any(map(pattern.fullmatch, sentences))]
    assert not unsaid, "\n".join(unsaid)


def test_only_a_gap_larger_than_matters_accuses_a_group():
    """The same rows, with a smallest effect that the interval includes: what was a no is a doubt."""
    data = planted(per_group=12, lightened={"A": 0.4, "B": 0.05, "E": 0.05})
    words = {gap.finding.word for gap in find(data).gaps if gap.disparity.quantity == "skin_lightened"}
    large = replace(data, settings=replace(data.settings, smallest_effects={"rate": 0.9}))
    assert words <= {"larger than matters", "differs, size unclear", "unclear"}
    assert "larger than matters" not in {gap.finding.word for gap in find(large).gaps}
    assert find(large).answers[1].verdict != "no"
    assert np.isfinite([gap.interval.high for gap in find(large).gaps]).all()
