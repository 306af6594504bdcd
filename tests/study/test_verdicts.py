"""How edits were chosen and who counts, from the study through `close` into gate, report and exports."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillme.api.pipeline import run_stages
from stillme.findings.gate import Asked, gate
from stillme.findings.gate.verdict_text import as_text
from stillme.findings.gate.verdicts import Verdict, Verdicts
from stillme.report.data import report_data
from stillme.runs import RecordedRun
from stillme.runs.participants import read_raters
from stillme.study.app import build
from stillme.study.candidates import OfferedItem, with_chances
from stillme.study.closing import UndecidedRaters, close_study
from stillme.study.config import StudyConfig
from stillme.study.export import codebook_of
from stillme.study.items import Item, Output
from stillme.study.opening import Study, open_study
from stillme.study.quality import Rater, Rating, quality_of
from tests.command_lines import ran
from tests.records import prompt, small_audit
from tests.study.conftest import Served
from tests.study.studies import change, draw_study, practised

AUDIT: dict[str, Any] = {
    "portraits": {"source": "synthetic-36", "limit": 24},
    "judges": [{"use": "scripted"}, {"use": "people", "epochs": 3}],
    "estimates": {"factors": ["preset"]},
}
RULE = "success judge=people >= 20%"
"""With four identities or so an interval is wide."""


@pytest.fixture(scope="session")
def forty_eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_audit(tmp_path_factory.mktemp("forty-eight"), prompts=("O-01", "O-02"), **AUDIT)
    run_stages(folder, ("edit", "judge"))
    return folder


def draw(run: Path, folder: Path, **design: object) -> Path:
    settings = {"items": 10, "per_task": 10, "compare": "none", "gold": 2, "attention": 2, "repeats": 0}
    draw_study(run, folder, **{**settings, **design})
    change(folder, 'contact = ""', 'contact = "ask@study.example"')
    return folder


def take_part(study: Study, value: Callable[[dict[str, object], str], int]) -> None:
    """Rate everything; `value` sees an item as the page has it, and the question's name."""
    browser = Served(study, build(study), "").invited().to_rating(practised(study))
    data, _ = browser.data()
    answers = [
        {"seq": 1 + 100 * item + q, "item": item, "side": 0, "question": q, "value": value(shown, question)}
        for item, shown in enumerate(data["items"])
        for q, question in enumerate(shown["questions"])
    ]
    browser.hand_in(answers)


def attentive(study: Study) -> Callable[[dict[str, object], str], int]:
    """Somebody who reads the checks, and finds that most edits worked; an unchanged picture is an unchanged picture."""
    gold = {item.prompt for item in study.drawn.items if item.kind == "gold"}
    unchanged = {"edit_success": 1, "skin_tone": 3, "race_change": 1, "gender_change": 1, "age_change": 3}

    def answer(shown: dict[str, object], question: str) -> int:
        if "attention check" in str(shown["prompt"]):
            return 2
        return unchanged[question] if shown["prompt"] in gold or question != "edit_success" else 5

    return answer


def fives(shown: dict[str, object], question: str) -> int:
    return 5


def verdict_of(run: Path, rule: str = RULE) -> tuple[Verdicts, str]:
    with RecordedRun.open(run) as opened:
        verdicts = gate(opened, Asked(rules=[rule]))
        return verdicts, as_text(verdicts)


@pytest.fixture
def run(forty_eight: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(forty_eight, tmp_path / "run"))


def test_a_rule_on_edits_chosen_by_their_outcome_decides_nothing(run: Path, tmp_path: Path) -> None:
    with open_study(draw(run, tmp_path / "study", choose="disputed", gold=0, attention=0)) as study:
        assert study.drawn.design["draw"] == "outcome"
        for _ in range(3):
            take_part(study, fives)
        closed = close_study(study, run, flagged="include")
        assert "3 who failed checks were kept" in closed.rule
        # As after a kill: their answers are in the run, and what was decided about them stays.
        assert close_study(study, run).rule == closed.rule
        assert "chosen by their outcome" in codebook_of(study)
    verdicts, text = verdict_of(run)
    assert verdicts.exit_code == 4, text
    assert "rated 10 of 48, chosen by their outcome" in text
    assert "calibrated" not in text
    with RecordedRun.open(run) as opened:
        data = report_data(opened, [])
        assert not data.stands_for_all
        assert "people rated 10 of 48, chosen by their outcome" in " ".join(data.raters_saw)


def test_a_rule_on_a_random_sample_decides_by_the_corrected_number(run: Path, tmp_path: Path) -> None:
    with open_study(draw(run, tmp_path / "study")) as study:
        assert study.drawn.design["draw"] == "stratified"
        for _ in range(3):
            take_part(study, attentive(study))
        done = close_study(study, run)
        assert done.flagged == ()
        assert "drawn at random" in codebook_of(study)
    verdicts, text = verdict_of(run)
    assert "rated 10 of 48, drawn at random" in text
    assert verdicts.exit_code == 0, text
    assert "calibrated" not in text
    assert verdict_of(run, "success judge=people <= 20%")[0].exit_code == 1
    with RecordedRun.open(run) as opened:
        assert "drawn at random" in " ".join(report_data(opened, []).raters_saw)


def test_raters_who_failed_checks_are_listed_and_counted_only_where_that_is_decided(run: Path, tmp_path: Path) -> None:
    with open_study(draw(run, tmp_path / "study")) as study:
        take_part(study, attentive(study))
        take_part(study, fives)
        take_part(study, fives)
        with pytest.raises(
            UndecidedRaters, match=r"2 finished raters failed checks:\n  r-\w+: attention, gold"
        ) as asked:
            close_study(study, run)
        assert "passed 0 of 2 attention checks (5 × 10)" in str(asked.value)
        assert "answers to real items (5 × 50)" in str(asked.value)
        assert study.is_open
        would = close_study(study, run, flagged="exclude", dry_run=True)
        assert (would.raters, would.added) == (1, 0)
        assert study.is_open
        done = close_study(study, run, flagged="exclude")
        assert (done.raters, dict(done.excluded)) == (1, {"failed attention, gold, straight-lining": 2})
    (recorded,) = read_raters(run)
    assert (recorded.counted, sum(recorded.excluded.values())) == (1, 2)
    assert "Decided when the study was closed" in recorded.rule
    _, text = verdict_of(run)
    assert "rated 10 of 48" in text
    with RecordedRun.open(run) as opened:
        assert "failed attention" in " ".join(report_data(opened, []).raters)


def test_a_rule_fixed_before_the_first_answer_is_followed_and_said_to_be(run: Path, tmp_path: Path) -> None:
    folder = draw(run, tmp_path / "study")
    change(folder, "exclude = []", 'exclude = ["attention"]')
    with open_study(folder) as study:
        take_part(study, fives)
        take_part(study, attentive(study))
        done = close_study(study, run)
        assert (done.raters, dict(done.excluded)) == (1, {"failed attention": 1})
        assert "fixed before the first answer" in done.rule


def test_a_rule_made_after_the_answers_is_said_to_be(run: Path, tmp_path: Path) -> None:
    folder = draw(run, tmp_path / "study")
    with open_study(folder) as study:
        take_part(study, fives)
    change(folder, "exclude = []", 'exclude = ["gold"]')
    shown = ran("study", "close", folder, "--run", run)
    assert "made after answers were there" in shown.output
    assert "excluded: 1 failed gold" in shown.output
    assert verdict_of(run)[0].decisions[0].verdict is Verdict.NO_DATA


@pytest.mark.parametrize(("wrong", "flagged"), [(1, False), (2, True)])
def test_one_missed_answer_of_two_is_a_slip_and_two_are_a_flag(wrong: int, flagged: bool) -> None:
    """As in a study of roles, whose tasks have one known answer in each of two items."""
    rater = Rater(
        name="r", slot="s", participant="p", excluded="", begun=0.0, ended=600.0, asked=2, version=1, written=False,
        seconds={},
    )  # fmt: skip
    scene = Output(file="", expected={"role_target": (1, 1)})
    gold = Item(id="g", kind="gold", prompt="", questions=("role_target",), source="", outputs=(scene,))
    rows = [
        Rating(
            rater=rater, item=gold, position=n, side=0, output=0, axis="role_target", value=2 if n < wrong else 1,
            at=0.0, first=None, shown=400,
        )
        for n in range(2)
    ]  # fmt: skip
    texts = {"consent": "x" * 40, "guide": "x" * 20, "debrief": "x" * 20}
    config = StudyConfig.model_validate({"texts": texts})
    assert ("gold" in quality_of(config, rater, rows, {}).flags) is flagged


def test_unequal_groups_are_weighed_by_their_share() -> None:
    """Drawn evenly over groups of different size, a small group's edits must not count as much as they are shown."""

    def candidate(n: int, group: str) -> OfferedItem:
        output = Output(file="", edit=f"e{n}", strata={"editor": "one", "arm": "baseline"})
        return OfferedItem(portrait=f"p{n}", groups={"g": group}, prompt=prompt(), outputs=(output,))

    offered = [candidate(n, "large" if n < 40 else "small") for n in range(48)]
    picked = with_chances([*offered[:4], *offered[40:44]], offered)
    assert [each.chance for each in picked] == [0.1] * 4 + [0.5] * 4
    # Of a group that is used up, everything was drawn; equal groups have equal chances, however 5 items fell on them.
    assert {each.chance for each in with_chances(offered[8:], offered)} == {0.8, 1.0}
    equal = [candidate(n, "ab"[n % 2]) for n in range(20)]
    assert {each.chance for each in with_chances(equal[:5], equal)} == {0.25}
