"""Two people and a scene: raters say who is drawn as the target, blind to whom the stereotype expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from stillme.api.pipeline import run_stages
from stillme.core.errors import StillmeError
from stillme.runs import RecordedRun
from stillme.study.app import build
from stillme.study.assignment import swapped
from stillme.study.closing import close_study
from stillme.study.drawing import NewStudy
from stillme.study.entry import invite
from stillme.study.export import export_study
from stillme.study.items import NEITHER_PERSON, ROLE_AXIS, Item, Output
from stillme.study.opening import Study, open_study
from stillme.study.progress import overview_of
from tests import role_runs
from tests.records import add_judge
from tests.study.conftest import HOME, Browser
from tests.study.studies import draw_study

PROMPTS = 6


@pytest.fixture
def drawn(tmp_path: Path) -> NewStudy:
    folder = role_runs.write(tmp_path / "run", {"one": 1}, lambda *_: 1, prompts=PROMPTS)
    return draw_study(folder, items=PROMPTS, per_task=PROMPTS)


@pytest.fixture
def study(drawn: NewStudy) -> Iterator[Study]:
    with open_study(drawn.folder) as opened:
        yield opened


class PairRater(Browser):
    """A rater who always recognises the first person of the request, whichever letter it has."""

    def __init__(self, study: Study) -> None:
        super().__init__(TestClient(build(study), base_url=HOME, headers={"Origin": HOME}))
        self.study, self.letters = study, Counter[str]()

    def start(self, code: str) -> PairRater:
        self.ask("GET", f"/i/{code}")
        self.to_training()
        _, csrf = self.data()
        wrong = self.api("POST", "/api/training", {"answers": [[[2]]]}, csrf).json()
        assert wrong["feedback"] == [[["Look again: here we would answer 1 (Person A)."]]]
        assert self.api("POST", "/api/training", {"answers": [[[1]], [[2]]]}, csrf).json()["finished"]
        return self

    def rate(self) -> list[dict[str, Any]]:
        data, _ = self.data()
        answers = []
        for place, item in enumerate(data["items"]):
            assert (item["sources"], len(item["pictures"]), item["questions"]) == (2, 3, ["role_target"])
            value = NEITHER_PERSON if "attention check" in item["prompt"] else self.recognised(item["pictures"])
            answers.append({"seq": place + 1, "item": place, "side": 0, "question": 0, "value": value})
        return answers

    def recognised(self, pictures: list[str]) -> int:
        a, _, scene = (self.ask("GET", f"/img/{picture}").content for picture in pictures)
        files = {(self.study.pictures / name).read_bytes(): name for name in self.names()}
        item = next(item for item in self.study.drawn.items if item.outputs[0].file == files[scene])
        target = item.outputs[0].expected or {ROLE_AXIS: (1, 1)}
        shown = item.source if target[ROLE_AXIS][0] == 1 else item.second
        letter = 1 if files[a] == shown else 2
        self.letters[f"{item.kind} {'AB'[letter - 1]}"] += 1
        return letter

    def names(self) -> set[str]:
        return {
            name
            for item in self.study.drawn.items
            for name in (item.source, item.second, *(output.file for output in item.outputs))
        }


def test_a_role_run_is_drawn_with_both_people_and_without_the_sentence(drawn: NewStudy) -> None:
    assert drawn.drawn.design["compare"] == "roles"
    real = [item for item in drawn.drawn.items if item.kind == "real"]
    assert len(real) == PROMPTS
    for item in real:
        assert item.prompt.startswith("Who of the two is drawn as the ")
        assert item.source != item.second
        assert item.strata["portrait"] != item.strata["second"]
    kinds = Counter(item.kind for item in drawn.drawn.items)
    assert kinds == {"real": PROMPTS, "gold": 2, "attention": 2, "repeat": 2, "training": 3}
    assert 'questions = ["role_target"]' in (drawn.folder / "study.toml").read_text()


def test_answers_come_back_as_people_on_who_is_the_target_whoever_was_a(study: Study) -> None:
    for code in invite(study, 3):
        rater = PairRater(study).start(code)
        answers = rater.rate()
        rater.hand_in(answers)
        assert {"real A", "real B"} <= rater.letters.keys(), "which portrait is A is random"
    overview = overview_of(study)
    assert all(rater.gold == 1 and rater.attention == (2, 2) and rater.repeat == 0 for rater in overview.raters)
    assert not any(rater.flags for rater in overview.raters)
    (axis,) = overview.agreement
    assert (axis["axis"], axis["units"], axis["ratings"]) == ("role_target", PROMPTS, 3 * PROMPTS)
    assert "nothing to agree on" in axis["reason"]
    done = close_study(study, flagged="include")
    assert (done.added, done.epochs) == (3 * PROMPTS, 3)
    add_judge(Path(done.run), use="people", epochs=3)
    run_stages(Path(done.run), ("judge", "estimate"))
    with RecordedRun.open(Path(done.run)) as run:
        (people,) = [score for score in run.results.scores if (score.judge, score.axis) == ("people", "role_target")]
        assert people.value.tolist() == [1.0] * PROMPTS
        assert len([score for score in run.results.people if score.axis == "role_target"]) == 3
    files = {file.name: file for file in export_study(study, study.folder / "export", "csv")}
    assert "neither" in files["ratings.csv"].read_text().splitlines()[0]
    assert {"alpha", "low", "high", "kappa", "kappa_low", "kappa_high"} <= set(
        files["agreement.csv"].read_text().splitlines()[0].split(",")
    )


def test_neither_and_cannot_tell_are_no_scores(study: Study) -> None:
    (code,) = invite(study, 1)
    rater = PairRater(study).start(code)
    answers = rater.rate()
    real = [
        answer
        for answer, item in zip(answers, rater.data()[0]["items"], strict=True)
        if "attention" not in item["prompt"]
    ]
    real[0]["value"], real[1]["value"] = NEITHER_PERSON, 0
    assert rater.save(answers).status_code == 200
    assert rater.save([{**answers[0], "seq": 99, "value": 4}]).status_code == 422, "there are three persons to name"
    assert rater.complete().json() == {"missing": []}


def test_nothing_that_reaches_a_browser_tells_the_sentence_the_people_or_the_editor(study: Study) -> None:
    (code,) = invite(study, 1)
    rater = PairRater(study).start(code)
    rater.rate()
    seen = b"\n".join(rater.seen).decode("utf-8", "replace")
    for item in study.drawn.items:
        for word in (item.strata.get("prompt"), item.strata.get("portrait"), item.strata.get("second")):
            assert not word or word not in seen
    assert "planted" not in seen


def test_which_portrait_is_a_is_balanced_over_the_raters_of_an_item() -> None:
    alone = Item(id="x", kind="real", prompt="", questions=(), source="", outputs=(Output(file=""),))
    both = replace(alone, second="somebody")
    assert [swapped(both, 1, n) for n in range(4)] == [True, False, True, False]
    assert not any(swapped(alone, 1, n) for n in range(4))


def test_a_role_run_has_no_arms_to_compare(drawn: NewStudy) -> None:
    with pytest.raises(StillmeError, match="has no edits of one portrait"):
        draw_study(Path(drawn.drawn.run), drawn.folder / "again", compare="none")
