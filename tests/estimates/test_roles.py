"""Role prompts: adherence to the stereotype, and what the pronoun does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stillme.core.types import NotEstimable, Portrait, Prompt
from stillme.estimates import Adherence, Edits, RatingState, Scores, Settings, adherence
from tests.records import edits_of, portrait

from .worlds import known

pytestmark = pytest.mark.numeric

quick = Settings(factors=())


def person(number: int, gender: str) -> Portrait:
    return portrait(f"{gender}{number:02d}", gender_presentation=gender)


def roles(
    sentences: int,
    followed: dict[str, float],
    *,
    couples: int = 20,
    counterbalance: bool = True,
    seed: int = 0,
    first: float = 0.0,
) -> tuple[Edits, Scores]:
    """Two people a request; the stereotype is followed with the given chance for each pronoun."""
    stream = np.random.default_rng(seed)
    men = [person(n, "masculine") for n in range(couples)]
    women = [person(n, "feminine") for n in range(couples)]
    prompts, table = [], []
    for number in range(sentences):
        stereotype = ("male", "female")[number % 2]
        habit = stream.normal(0, 0.1)
        for pronoun, chance in followed.items():
            suffix = "" if pronoun == "pro" else f"-{pronoun}"
            prompts.append(
                Prompt(
                    id=f"W-{number:02d}{suffix}",
                    text="",
                    category="role",
                    subcategory="s",
                    stereotype=stereotype,
                    pronoun=pronoun,
                    target="t",
                )
            )
            couple = number % couples
            expected, other = (couple, couples + couple)[:: 1 if stereotype == "male" else -1]
            for place in (1, 2) if counterbalance else (1,):
                pair = (expected, other) if place == 1 else (other, expected)
                share = chance + habit + (first if place == 1 else -first)
                drawn = place if stream.random() < share else 3 - place
                table.append((*pair, len(prompts) - 1, place, drawn))
    rows = np.array(table, dtype=np.int32)
    edits = edits_of([*men, *women], prompts, rows[:, 0], rows[:, 2], second=rows[:, 1], matching=rows[:, 3])
    state = np.full(len(rows), RatingState.RATED, dtype=np.int32)
    return edits, Scores(judge="judge", axis="role_target", value=rows[:, 4].astype(float), state=state)


def one(rows: list[Adherence], pronoun: str, place: str = "") -> Adherence:
    (match,) = [row for row in rows if (row.pronoun, row.place) == (pronoun, place)]
    return match


def test_a_biased_editor_is_found_and_the_pronoun_told_apart_from_the_stereotype() -> None:
    edits, scores = roles(40, {"pro": 0.9, "anti": 0.5, "none": 0.7})
    shares = adherence(edits, [scores], quick)
    assert known(one(shares, "pro")).low > 0.75
    assert known(one(shares, "pro")).low < 0.9 < known(one(shares, "pro")).high
    assert known(one(shares, "none")).low < 0.7 < known(one(shares, "none")).high
    difference = known(one(shares, "pro - anti"))
    assert 0.1 < difference.low < 0.4 < difference.high
    assert one(shares, "pro").p < 0.01
    assert (one(shares, "").sentences, one(shares, "").portraits, one(shares, "").edits) == (40, 40, 240)


def test_an_unbiased_editor_is_at_one_half() -> None:
    wrong, covered, audits = 0, 0, 50
    for seed in range(audits):
        edits, scores = roles(40, {"pro": 0.5}, seed=seed)
        share = one(adherence(edits, [scores], quick), "")
        covered += known(share).low <= 0.5 <= known(share).high
        wrong += share.p <= 0.05
    assert covered / audits > 0.86
    assert wrong / audits < 0.14


def test_adherence_counts_the_person_whom_the_stereotype_expects() -> None:
    edits, scores = roles(24, {"pro": 0.8}, first=0.15)
    shares = adherence(edits, [scores], quick)
    followed = scores.value == edits.matching
    assert known(one(shares, "")).value == pytest.approx(followed.mean())
    for place, name in ((1, "first"), (2, "second")):
        assert known(one(shares, "", name)).value == pytest.approx(followed[edits.matching == place].mean())


def test_without_counterbalance_there_is_one_place_and_no_difference() -> None:
    edits, scores = roles(24, {"pro": 0.8}, counterbalance=False)
    assert {(share.pronoun, share.place) for share in adherence(edits, [scores], quick)} == {("", "")}


def test_an_abstention_is_neither_followed_nor_resisted() -> None:
    edits, scores = roles(24, {"pro": 1.0})
    silent = np.arange(len(edits)) % 4 == 0
    state = np.where(silent, RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    share = one(
        adherence(edits, [replace(scores, value=np.where(silent, np.nan, scores.value), state=state)], quick), ""
    )
    assert (share.abstained, share.edits) == (silent.sum(), (~silent).sum())
    assert known(share).value > 0.9


def test_one_person_at_a_time_an_editor_that_keeps_people_is_at_one_half() -> None:
    stream = np.random.default_rng(0)
    crowd = tuple(person(n, gender) for n in range(20) for gender in ("masculine", "feminine"))
    prompts = tuple(
        Prompt(id=f"W-{n:02d}", text="", category="role", subcategory="s", stereotype=("male", "female")[n % 2])
        for n in range(20)
    )
    who = np.arange(40, dtype=np.int32)
    edits = edits_of(crowd, prompts, who, who // 2)
    state = np.full(40, RatingState.RATED, dtype=np.int32)
    keeps = Scores(judge="judge", axis="gender_change", value=np.ones(40), state=state)
    assert known(adherence(edits, [keeps], quick)[0]).value == 0.5
    conflicts = (who % 2) != (who // 2 % 2)
    flips = replace(keeps, value=np.where(conflicts & (stream.random(40) < 0.9), 5.0, 1.0))
    share = adherence(edits, [flips], quick)[0]
    assert share.layout == "role_single"
    assert known(share).low > 0.7


def test_where_everything_hangs_together_people_and_sentences_are_two_way_clusters() -> None:
    edits, scores = roles(12, {"pro": 0.8, "anti": 0.6}, couples=2)
    share = one(adherence(edits, [scores], quick), "")
    assert "prompts and 4 portraits" in known(share).method
    assert share.p is None


def test_no_role_prompt_no_adherence() -> None:
    edits, scores = roles(4, {"pro": 0.8})
    plain = replace(edits, prompts=tuple(replace(prompt, stereotype=None) for prompt in edits.prompts))
    assert adherence(plain, [scores], quick) == []
    first = np.arange(len(edits)) < 1
    alone = one(adherence(edits.where(first), [scores.where(first)], quick), "")
    assert isinstance(alone.outcome, NotEstimable)
