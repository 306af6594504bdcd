"""Honest editors are not accused and guilty ones are found, by the shipped instruments and the estimates' words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from stillme.core.colour import to_lab
from stillme.core.images import read_rgb
from stillme.core.types import Edited, Portrait
from stillme.estimates import estimate
from stillme.estimates.headlines import is_drift, is_headline, smallest_effect
from stillme.findings.calibration import honest
from stillme.findings.calibration.honest import HonestEdit
from stillme.findings.compare import choose, compare, match
from stillme.findings.gate import Asked, Verdict, gate
from stillme.portraits import portraits, portraits_36
from stillme.report.data import report_data
from stillme.report.findings import find
from stillme.runs import RecordedRun
from tests.calibration.guilty import GuiltyEdit, editor_of, edits, load, skin_of, skipped
from tests.calibration.jury import LARGER, Ruling, Trial, rule, run_jury, try_edits, wrong_about_visibility
from tests.records import asked, must_be

FEW = (
    HonestEdit(kind="mirror"),
    HonestEdit(kind="grey"),
    HonestEdit(kind="warm", amount=0.15),
    HonestEdit(kind="bar"),
    HonestEdit(kind="gamma", amount=0.9),
    HonestEdit(kind="relit_background", amount=0.2),
)
UNFAIR = (GuiltyEdit(kind="mirror", guilt="lighter"), GuiltyEdit(kind="warm", amount=0.15, guilt="lighter"))
SUBJECTS = list(load().subjects)


def some() -> list[Portrait]:
    """Twenty-four portraits: three presets, eight gender × age cells."""
    cells = [f"{gender}{age}" for gender in "fm" for age in (23, 43, 53, 63)]
    return [one for one in portraits() if one.attributes["preset"] in "ADG" and one.attributes["cell"] in cells]


@dataclass(frozen=True)
class Court:
    run: RecordedRun
    tried: Sequence[HonestEdit]
    trials: Sequence[Trial]

    def problems(self, subject: str) -> list[str]:
        named = load().subjects[subject]
        return [problem for ruling in rule(self.trials) if ruling.quantity in named for problem in ruling.problems]


def court(folder: Path, tried: Sequence[HonestEdit], people: Sequence[Portrait]) -> Court:
    run = run_jury(folder, tried, people)
    return Court(run, tried, list(try_edits(run, tried)))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Court:
    return court(tmp_path_factory.mktemp("few") / "run", (*FEW, *UNFAIR), some())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_six_honest_editors_are_not_accused_and_an_unfair_one_is_found(few: Court, subject: str):
    assert not few.problems(subject)


def test_no_visible_change_is_right_about_six_editors(few: Court):
    assert not any(wrong_about_visibility(few.run, FEW).values())


# -- through report, gate and compare -------------------------------------------------------------------------------

HONEST = [edit.name for edit in FEW]
FACTORS = ("preset", "gender_presentation")


def test_the_first_screen_accuses_no_honest_editor_of_a_gap(few: Court):
    run = few.run
    found = find(report_data(run, estimate(run.results.edits, run.results.scores, run.settings)))
    # Corrected for eight editors together, 24 portraits need not show the unfair ones: each alone is tried above.
    accused = {gap.disparity.editor for gap in found.gaps if gap.matters}
    assert not accused & set(HONEST)
    sentences = [sentence for answer in found.answers for sentence in answer.sentences]
    # That a mirrored picture shows no edit is true of everyone alike, and said so.
    cleared = ("of all edits", "no gap found")
    accusing = [text for text in sentences if not any(map(text.__contains__, cleared))]
    unfair = tuple(edit.name for edit in UNFAIR)
    assert not [text for text in accusing if text.startswith(tuple(HONEST)) and not text.startswith(unfair)]


def test_the_gate_fails_no_honest_editor(few: Court):
    rules = [
        f"{quantity}.disparity@{factor} editor={editor} <= {smallest_effect(quantity, {})}"
        for quantity in ("skin_lightened", "skin_delta_l", "identity_distance", "skipped", "another_person")
        for factor in FACTORS
        for editor in map(json.dumps, HONEST)
    ]
    rules += [
        f"{rate} editor={json.dumps(editor)} <= 5%" for rate in ("skipped", "another_person") for editor in HONEST
    ]
    verdicts = gate(few.run, Asked(rules=rules, allow_uncalibrated=True))
    assert [str(one.rule) for one in verdicts.decisions if one.verdict is Verdict.FAILED] == []


def test_comparing_two_honest_editors_finds_no_one_worse(few: Court):
    matched = match(*choose(few.run, None, ("mirror", "bar")))
    changed = compare(matched)
    drift = [change for change in changed.with_verdict("worse") if is_drift(change.quantity)]
    assert drift == []
    assert [gap for gap in changed.gaps if gap.verdict == "worse" and is_headline(gap.quantity)] == []


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Court:
    tried = (*edits(), *edits(guilt="lighter"))
    return court(tmp_path_factory.mktemp("everything") / "run", tried, portraits())


@pytest.fixture(scope="module")
def skipping(tmp_path_factory: pytest.TempPathFactory) -> Court:
    """A third of one preset of 84 portraits is four people: too few to find. Of 252 it is twelve."""
    kinds = dict.fromkeys(edit.kind for edit in edits(guilt="skipping"))
    tried = [GuiltyEdit(kind=kind, guilt="skipping") for kind in kinds]
    return court(tmp_path_factory.mktemp("skipping") / "run", tried, portraits_36())


@pytest.mark.soak
@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_honest_editor_is_accused(everything: Court, subject: str):
    named = load().subjects[subject]
    assert not [wrong for ruling in rule(everything.trials) if ruling.quantity in named for wrong in ruling.wrongs]


@pytest.mark.soak
def test_one_preset_made_lighter_is_found_in_four_fifths_of_the_kinds(
    everything: Court, record_property: Callable[[str, object], None]
):
    (ruling,) = [ruling for ruling in rule(everything.trials) if ruling.quantity == "skin_lightened"]
    record_property("kinds", len(ruling.found) + len(ruling.unanswered))
    record_property("found", len(ruling.found) - len(ruling.missed))
    record_property("missed", ruling.missed)
    record_property("unanswered", ruling.unanswered)
    assert not ruling.misses


@pytest.mark.soak
def test_no_visible_change_is_right_about_every_editor(everything: Court):
    assert not any(wrong_about_visibility(everything.run, edits()).values())


@pytest.mark.soak
def test_editors_that_skip_a_third_of_one_preset_are_found(skipping: Court):
    assert not skipping.problems("skipped")


# -- how the jury counts ----------------------------------------------------------------------------------------------


def ruled(*kinds: tuple[str, str, float]) -> Ruling:
    """A ruling on unfair editors: kind, word, and the share of edits with an answer."""
    unfair = {"quantity": "skin_lightened", "factor": "preset", "gap": 1.0, "rate_breaks": False}
    trials = [
        Trial(
            edit=GuiltyEdit(kind=kind, guilt="lighter"),
            word=word,
            differs=bool(word),
            breaks_limit=bool(word),
            answered=answered,
            **unfair,
        )
        for kind, word, answered in kinds
    ]
    (ruling,) = rule(trials)
    return ruling


def test_an_answered_kind_in_which_nothing_is_decided_is_missed():
    four = [(kind, LARGER, 1.0) for kind in ("mirror", "jpeg", "resize", "zoom")]
    assert not ruled(*four, ("bar", "", 0.9)).problems, "four of five are enough"
    uneven = ruled(*four, ("bar", "", 0.9), ("gamma", "", 0.5))
    assert uneven.missed == ("bar", "gamma")
    assert uneven.problems == ["skin_lightened finds the guilty in 4 of 6 kinds; missed: bar, gamma"]


def test_a_kind_with_few_answers_is_not_missed_but_a_third_at_most_may_be_so():
    three = [(kind, LARGER, 1.0) for kind in ("mirror", "jpeg", "resize")]
    assert not ruled(*three, ("bar", "", 0.49)).problems
    assert "leaves 2 of 5 kinds unanswered" in ruled(*three, ("bar", "", 0.4), ("gamma", "", 0.4)).problems[0]
    assert len(ruled(("bar", "", 0.0)).problems) == 2, "who says nothing finds no one"


# -- the edits themselves -------------------------------------------------------------------------------------------


def test_every_kind_has_an_operation_and_silences_that_are_known():
    jury = load()
    assert set(jury.kinds) == set(honest.OPERATIONS)
    assert {subject for kind in jury.kinds.values() for subject in kind.silent} <= set(jury.subjects)
    assert {guilt.subject for guilt in jury.guilty.values()} <= set(jury.subjects)


@pytest.mark.parametrize("edit", {edit.kind: edit for edit in edits()}.values(), ids=str)
def test_an_honest_edit_edits(edit: HonestEdit):
    dark = next(one for one in portraits() if one.id == "A_f_43")
    before, after = read_rgb(dark.image.path), edit.apply(dark)
    assert after.dtype == np.uint8
    assert after.shape != before.shape or (after != before).any()


def test_the_unfair_edit_lightens_the_preset_by_six_and_no_one_else():
    dark, light = (one for one in portraits() if one.id in ("A_f_43", "B_f_43"))
    unfair, fair = GuiltyEdit(kind="zoom", amount=0, guilt="lighter"), HonestEdit(kind="zoom", amount=0)
    skin = skin_of(dark, fair.apply(dark)) > 0.99
    change = to_lab(unfair.apply(dark))[..., 0][skin] - to_lab(fair.apply(dark))[..., 0][skin]
    assert np.median(change) == pytest.approx(6, abs=0.3)
    assert (unfair.apply(light) == fair.apply(light)).all()


def test_a_skipped_edit_is_the_portrait_as_it_was():
    edit = GuiltyEdit(kind="grey", guilt="skipping")
    names = set(skipped(edit, portraits()))
    assert len(names) == 4
    left, other = (next(one for one in portraits() if one.id in some) for some in (names, {"B_f_43"}))
    editor = editor_of(edit, portraits())
    kept, made = (must_be(Edited, editor.edit_one(asked(editor, one))) for one in (left, other))
    assert np.abs(read_rgb(kept.image).astype(int) - read_rgb(left.image.path)).mean() < 2
    assert np.abs(read_rgb(made.image).astype(int) - read_rgb(other.image.path)).mean() > 5
