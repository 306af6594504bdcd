"""What one picture shows, by a model or a function that sees nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from stillme.core.errors import Refusal
from stillme.core.types import Abstained, Failed, Pair, Rated
from stillme.judges.own import FunctionJudge
from tests.vlm.conftest import Serve, every_provider
from tests.vlm.servers import CHAT, WireFormat

RACES = ("Black", "Indian", "White")
READING = {"observations": "short grey hair", "race": "Indian", "gender": "feminine", "age": 61}


@every_provider
def test_a_model_reads_one_picture_and_is_told_nothing_else(
    serve: Serve, pair_of: Callable[..., Pair], wire: WireFormat
):
    served = serve(wire, READING, reads=RACES)
    reading = served.judged(pair_of(labels={"race": "Black"}))
    assert reading.ratings == {
        "read_race": Rated(score=2, evidence="short grey hair"),
        "read_gender": Rated(score=2, evidence="short grey hair"),
        "read_age": Rated(score=61, evidence="short grey hair"),
    }
    seen = served.saw()
    assert len(seen.images) == 1
    for told in ("suit", "secret-edit", "Black_woman", "EDIT INSTRUCTION", "SOURCE"):
        assert told not in seen.system + seen.text
    assert "cannot_tell" in seen.system


def test_a_model_that_cannot_tell_abstains(serve: Serve, pair_of: Callable[..., Pair]):
    served = serve(CHAT, READING | {"race": "cannot_tell", "gender": "cannot_tell", "age": None}, reads=RACES)
    reading = served.judged(pair_of())
    assert set(reading.ratings.values()) == {Abstained(reason="cannot tell")}


def test_a_model_that_will_not_name_a_race_refuses_and_that_is_told_apart(serve: Serve, pair_of: Callable[..., Pair]):
    served = serve(CHAT, reads=RACES)
    served.server.breaks(CHAT.refusal("I will not name a race."))
    reading = served.judged(pair_of())
    reasons = {rating.reason for rating in reading.ratings.values() if isinstance(rating, Abstained)}
    assert len(reasons) == 1
    assert "I will not name a race." in reasons.pop()


def test_a_word_of_another_taxonomy_is_malformed_and_never_a_reading(serve: Serve, pair_of: Callable[..., Pair]):
    served = serve(CHAT, READING | {"race": "Martian"}, READING | {"race": "Martian"}, reads=RACES)
    reading = served.judged(pair_of())
    assert all(isinstance(rating, Failed) for rating in reading.ratings.values())


def test_a_reader_has_its_own_key_and_a_judge_keeps_its_own(serve: Serve):
    judge, reader, other = (
        serve(CHAT, READING, **more).asker for more in ({}, {"reads": RACES}, {"reads": ("A", "B")})
    )
    assert "reads" not in judge.spec.parameters
    assert reader.spec.parameters["reads"] == list(RACES)
    assert reader.spec.version != judge.spec.version
    assert other.spec.parameters["reads"] != reader.spec.parameters["reads"]


def read(function: Callable[..., Any], pair: Pair) -> Any:
    (reading,) = FunctionJudge.of(function, axes=("ignored",), reads=RACES).judge([pair])
    return reading.ratings


def test_a_function_reads_one_picture(pair_of: Callable[..., Pair]):
    seen: list[Any] = []

    def of(image: Image.Image) -> dict[str, Any]:
        seen.append(image.size)
        return {"race": "White", "gender": "androgynous", "age": None}

    assert read(of, pair_of()) == {
        "read_race": Rated(score=3),
        "read_gender": Rated(score=3),
        "read_age": Abstained(reason="cannot tell"),
    }
    assert seen == [(40, 40)]


def test_readings_made_elsewhere_are_found_by_the_pictures_hash(pair_of: Callable[..., Pair]):
    pair, table = pair_of(), dict[str, dict[str, Any]]()

    def looked_up(sha256: str) -> dict[str, Any]:
        return table[sha256]

    missing = read(looked_up, pair)["read_race"]
    # A picture that is not in the table yet is asked for again with the next run, and never "cannot tell".
    assert missing.retryable
    table[pair.edited.sha256] = {"race": "Indian", "gender": None, "age": 40}
    assert read(looked_up, pair)["read_race"] == Rated(score=2)


def refuses(image: Image.Image) -> dict[str, Any]:
    raise Refusal("not by appearance")


def test_a_function_that_refuses_abstains_with_its_reason(pair_of: Callable[..., Pair]):
    assert set(read(refuses, pair_of()).values()) == {Abstained(reason="not by appearance")}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"race": "white", "gender": None, "age": 3}, "'white'; give one of Black, Indian, White, or None"),
        ({"race": None, "gender": "male", "age": 3}, "'male'; give one of masculine, feminine, androgynous, or None"),
        ({"race": None, "gender": None, "age": 300}, "give years from 0 to 120, or None"),
        ({"race": None}, "must return a dict of race, gender and age"),
        (7, "must return a dict of race, gender and age"),
    ],
)
def test_a_wrong_answer_is_a_failure_that_says_what_to_return(pair_of: Callable[..., Pair], answer: Any, problem: str):
    (failed, *_) = read(lambda image: answer, pair_of()).values()
    assert problem in failed.error


def test_a_reading_function_may_only_ask_for_the_picture():
    judge = FunctionJudge.of(lambda source: None, axes=("ignored",), reads=RACES)
    (problem,) = judge.problems([], [])
    assert "'source'" in problem
    assert "image, sha256, epoch" in problem
