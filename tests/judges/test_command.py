"""A program is a judge: the JSON that it prints becomes ratings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from stillme.core.protocols import Judge
from stillme.core.types import Abstained, Assessment, Rated
from stillme.judges.own import CommandJudge, JudgeCommandParameters
from stillme.plugins.testing import check_plugin
from stillme.portraits import portraits
from tests.judges.conftest import PAIR

BRIGHTER = """
import json, sys
from PIL import Image, ImageStat
before, after = (ImageStat.Stat(Image.open(file).convert("L")).mean[0] for file in sys.argv[1:3])
print(json.dumps({"edit_success": 5, "brighter": after - before}))
"""
PLACES = ("{source}", "{edited}", "{instruction}")


def judge(folder: Path, program: str, **settings: Any) -> CommandJudge:
    (folder / "rate.py").write_text(program)
    settings = {"axes": ("edit_success", "brighter"), **settings}
    return CommandJudge(JudgeCommandParameters(run=(sys.executable, "rate.py", *PLACES), **settings).with_base(folder))


def assessed(folder: Path, program: str, **settings: Any) -> Assessment:
    return next(judge(folder, program, **settings).judge([PAIR]))


def prints(answer: object) -> str:
    return f"print({json.dumps(answer)!r})"


def test_a_program_conforms(tmp_path: Path):
    (tmp_path / "rate.sh").write_text("""test -s "$2" && echo '{"edit_success": 5, "brighter": 1}'""")
    run = ["sh", str(tmp_path / "rate.sh"), *PLACES]
    check_plugin(CommandJudge, portraits()[:2], {"run": run, "axes": ["edit_success", "brighter"], "concurrency": 2})
    assert isinstance(judge(tmp_path, BRIGHTER), Judge)


def test_scores_abstentions_and_evidence(tmp_path: Path):
    answer = {"edit_success": {"score": 4, "evidence": "a suit"}, "brighter": None}
    assessment = assessed(tmp_path, prints(answer), price=0.5)
    assert assessment.ratings == {
        "edit_success": Rated(score=4.0, evidence="a suit"),
        "brighter": Abstained(reason="no reason given"),
    }
    assert json.loads(assessment.raw or "") == answer
    assert assessment.cost == 0.5
    because = assessed(tmp_path, prints({"edit_success": 5, "brighter": {"score": None, "evidence": "too dark"}}))
    assert because.ratings["brighter"] == Abstained(reason="too dark")


def test_what_libraries_print_before_is_ignored(tmp_path: Path):
    noisy = "print('loading weights …')\n" + prints({"edit_success": 5, "brighter": 1})
    assert assessed(tmp_path, noisy).ratings["edit_success"] == Rated(score=5.0)


def test_a_refusal_abstains_on_every_axis(tmp_path: Path):
    assessment = assessed(tmp_path, "print('stillme: refused: no faces, please')")
    assert set(assessment.ratings.values()) == {Abstained(reason="no faces, please")}


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('great edit')", "printed no JSON, but 'great edit'"),
        ("pass", "printed nothing"),
        (prints({"edit_success": 5}), "it returned no brighter"),
        (prints({"edit_success": {"rating": 5}, "brighter": 1}), 'give {"score": …'),
        ("raise SystemExit('no weights')", "exit code 1: no weights"),
    ],
)
def test_anything_else_is_a_failure_and_never_a_score(tmp_path: Path, program: str, words: str):
    ratings = assessed(tmp_path, program).ratings
    assert ratings.keys() == {"edit_success", "brighter"}
    for rating in ratings.values():
        assert words in rating.error
        assert rating.retryable


def test_an_answer_that_cannot_be_used_is_paid_for_all_the_same(tmp_path: Path):
    assert assessed(tmp_path, prints({}), price=0.5).cost == 0.5
    assert assessed(tmp_path, "raise SystemExit(1)", price=0.5).cost == 0.0


def test_a_judge_must_see_the_edit(tmp_path: Path):
    (tmp_path / "rate.py").write_text("")
    run = (sys.executable, "rate.py", "{source}")
    blind = CommandJudge(JudgeCommandParameters(run=run, axes=("brighter",)).with_base(tmp_path))
    assert list(blind.problems([], [])) == ["`run` has no {edited}; add it where the program expects it"]


def test_axes_and_files_are_part_of_the_key(tmp_path: Path):
    first = judge(tmp_path, BRIGHTER).spec.key
    assert judge(tmp_path, BRIGHTER, axes=("brighter",)).spec.key != first
    assert judge(tmp_path, BRIGHTER + "# changed").spec.key != first
