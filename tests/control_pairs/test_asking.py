"""Pairs of known truth among a judge's questions: how many, where, in which form, and kept apart."""

from __future__ import annotations

from collections import Counter

import pytest
from PIL import Image

from stillme.api.pipeline import Ended, RunOptions, run_audit
from stillme.runs import RecordedRun
from stillme.runs.control_pairs.asking import drawn
from stillme.runs.store import Store
from stillme.work.stages import work
from tests.control_pairs.conftest import AXES, Knowing, Make

BOTH = ("edit", "judge")


def test_a_share_of_the_questions_is_known_and_never_the_first(make: Make):
    audit, judge = make()
    worked = work(audit, BOTH, RunOptions())
    assert (worked.ended, worked.totals.assessments) == (Ended.COMPLETE, 100)
    assert 18 <= len(judge.hidden) <= 20, "one in each stretch; a few belong after the last question"
    assert judge.hidden[0] > 0
    gaps = {later - earlier for earlier, later in zip(judge.hidden, judge.hidden[1:], strict=False)}
    assert len(gaps) > 3, "no fixed position"


def test_few_questions_and_a_share_of_zero_have_none(make: Make):
    for more in ({"share": 0.0}, {"sections": {"prompts": {"only": ["O-01"]}}, "share": 0.05}):
        audit, judge = make(name=str(more), **more)
        work(audit, BOTH, RunOptions())
        assert judge.asked
        assert not judge.hidden


def test_judges_on_this_machine_get_none(make: Make):
    audit, judge = make()
    del type(judge).provider
    try:
        assert audit.control_pair_count(audit.judges[0]) == 0
    finally:
        type(judge).provider = "http://elsewhere"


def test_pairs_are_balanced_over_skin_tones_and_mixed():
    pairs = drawn(AXES, 0, "a judge")
    first = [next(pairs) for _ in range(54)]
    assert set(Counter(pair.tone for pair in first).values()) == {18}
    assert {tone for pair in first[:3] for tone in [pair.tone]} == {"darker", "medium", "lighter"}
    assert {"skin", "age", "gender", "features", "exposure"} <= {pair.kind for pair in first}
    assert not {"identical", "black", "swapped"} & {pair.kind for pair in first}, "recognisable, or of unknown truth"
    other = drawn(AXES, 1, "a judge")
    assert [next(other).name for _ in range(54)] != [pair.name for pair in first]


def test_a_hidden_pair_has_the_form_of_a_real_one(make: Make):
    audit, judge = make(labels=True)
    work(audit, BOTH, RunOptions())
    hidden = [pair for pair in judge.asked if judge.is_hidden(pair)]
    real = [pair for pair in judge.asked if not judge.is_hidden(pair)]
    for pair in hidden:
        for picture in (*pair.sources, pair.edited):
            with Image.open(picture.path) as opened:
                assert (opened.size, opened.format) == ((64, 96), "PNG")
            assert picture.path.parent.parent == real[0].edited.path.parent.parent
        assert pair.sources[0].sha256 != pair.edited.sha256
        assert pair.labels in [one.labels for one in real]
        assert pair.prompt in {one.prompt for one in real}
    assert len({pair.prompt.id for pair in hidden}) > 5


def test_nothing_of_the_run_changes_by_them(make: Make):
    audit, _ = make()
    plain, _ = make(name="plain", share=0.0)
    for each in (audit, plain):
        run_audit(each)
    with RecordedRun.open(audit.folder) as one, RecordedRun.open(plain.folder) as other:
        assert len(one.store.control_pairs(audit.judges[0].judge.spec.key)) > 10
        assert one.design.hash == other.design.hash
        scores = [(score.axis, score.value.tolist()) for score in one.results.scores]
        assert scores == [(score.axis, score.value.tolist()) for score in other.results.scores]
    for file in ("tables/estimates.csv", "tables/disparities.csv"):
        if (plain.folder / file).exists():
            assert (audit.folder / file).read_bytes() == (plain.folder / file).read_bytes()


def test_they_cost_and_count_for_the_budget(make: Make):
    audit, judge = make()
    assert run_audit(audit).totals.cost == pytest.approx(0.01 * len(judge.asked))
    audit, judge = make(name="short", judge=Knowing(), sections={"budget": {"dollars": 0.5}})
    summary = run_audit(audit)
    assert summary.ended is Ended.OVER_BUDGET
    assert len(judge.asked) <= 50
    assert judge.hidden


def test_a_rerun_asks_only_what_is_missing(make: Make):
    audit, judge = make(sections={"budget": {"dollars": 0.5}})
    work(audit, BOTH, RunOptions())
    first = {pair.edit for pair in judge.asked}
    again, other = make(judge=Knowing())
    work(again, BOTH, RunOptions())
    assert not first & {pair.edit for pair in other.asked}
    assert not other.is_hidden(other.asked[0])
    with Store.reading(audit.folder) as store:
        numbers = [row.number for row in store.control_pairs(judge.spec.key)]
    assert len(numbers) == len(set(numbers)) >= 18
    last, nobody = make(judge=Knowing())
    work(last, BOTH, RunOptions())
    assert not nobody.asked


def test_a_failed_one_is_tried_again_by_the_next_run(make: Make):
    audit, judge = make()
    judge.fails = judge.is_hidden
    worked = work(audit, BOTH, RunOptions())
    failed = len(judge.hidden)
    assert (worked.totals.to_retry, worked.totals.assessments) == (failed, 100)
    assert worked.totals.cost == pytest.approx(0.01 * len(judge.asked)), "a failed try is counted once"
    assert str(worked.failures[0]) == f"judge failed {failed}×: gone"
    again, other = make(judge=Knowing())
    assert work(again, BOTH, RunOptions(only_failed=True)).totals.to_retry == 0
    assert len(other.asked) == len(other.hidden) == failed
