"""Role prompts meet two people who differ in gender presentation only; an editor of one picture does not start."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from stillme import audit
from stillme.api.pipeline import run_stages
from stillme.audit import Audit
from stillme.core.errors import InvalidAudit
from stillme.runs import RecordedRun


def write(folder: Path, roles: str, editor: str = 'use = "planted"', more: str = "", only: str = "[]") -> Path:
    (folder / "audit.toml").write_text(
        f"""
[portraits]
source = "synthetic"
[prompts]
sets = ["roles"]
only = {only}
[roles]
{roles}
[[editors]]
{editor}
[[judges]]
use = "scripted"
[estimates]
factors = ["preset", "gender_presentation", "age_band"]
{more}
"""
    )
    return folder


def load(folder: Path, roles: str = "", **options: str) -> Audit:
    return audit.load(write(folder, roles, **options), ready=False)


def test_the_papers_experiment_is_fifty_requests_an_editor_with_the_expected_person_first(tmp_path: Path):
    loaded = load(tmp_path)
    requests = list(loaded.requests(loaded.editors[0]))
    assert len(requests) == loaded.request_count(loaded.editors[0]) == 50
    for request in requests:
        expected, other = (portrait.attributes["gender_presentation"] for portrait in request.portraits)
        assert expected == {"male": "masculine", "female": "feminine"}[request.prompt.stereotype or ""] != other
        assert loaded.expected_place(request) == 1


def test_the_two_differ_in_nothing_else_that_is_labelled(tmp_path: Path):
    for cast in load(tmp_path).casts:
        one, other = (dict(portrait.attributes) for portrait in cast.portraits)
        assert (one["preset"], one["age_band"]) == (other["preset"], other["age_band"])


def test_nobody_plays_much_more_often_than_others(tmp_path: Path):
    played = Counter(portrait.id for cast in load(tmp_path).casts for portrait in cast.portraits)
    assert len(played) == 84
    assert set(played.values()) == {1, 2}


def test_counterbalance_crosses_pronoun_and_order_for_the_same_people(tmp_path: Path):
    loaded = load(tmp_path, "counterbalance = true", only='["W-02", "W-10"]')
    requests = list(loaded.requests(loaded.editors[0]))
    crossed = Counter((request.prompt.pronoun, loaded.expected_place(request)) for request in requests)
    expected = {("pro", 1), ("pro", 2), ("anti", 1), ("anti", 2), ("none", 1), ("none", 2)}
    assert set(crossed) == expected
    assert len(requests) == 6 + 6
    hired = [request for request in requests if request.prompt.id.startswith("W-02")]
    assert len({frozenset(portrait.id for portrait in request.portraits) for request in hired}) == 1
    assert len({request.key for request in requests}) == len(requests)


def test_alone_each_of_the_two_is_edited_by_itself(tmp_path: Path):
    loaded = load(tmp_path, 'layouts = ["role_single"]', editor='use = "noop"')
    requests = list(loaded.requests(loaded.editors[0]))
    assert len(requests) == 100
    assert {len(request.portraits) for request in requests} == {1}


def test_an_editor_of_one_picture_does_not_start_on_pairs(tmp_path: Path):
    with pytest.raises(InvalidAudit, match="'noop' takes 1 picture at a time, but role_pair needs 2"):
        load(tmp_path, editor='use = "noop"')


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ('gender = "sex"', "no two portraits have sex = 'masculine'"),
        ('male = "man"', "no two portraits have gender_presentation = 'man'"),
        ('layouts = ["role_trio"]', "roles.layouts"),
    ],
)
def test_a_mistake_in_roles_is_named(tmp_path: Path, roles: str, words: str):
    with pytest.raises(InvalidAudit, match=words):
        load(tmp_path, roles)


def test_planted_adherence_is_in_the_rows_with_both_people(tmp_path: Path):
    editor = 'use = "planted"\n[editors.parameters]\nroles = { adherence = 0.75, pronoun = 0.25 }'
    folder = write(tmp_path, "counterbalance = true", editor=editor, only='["W-01", "W-26"]')
    run_stages(folder, ("edit", "judge"))
    found = RecordedRun.open(folder).results
    (drawn,) = (truth.value for truth in found.truths if truth.axis == "role_target")
    edits = found.edits
    assert edits.second is not None
    follows = [edits.prompts[code].pronoun == "pro" for code in edits.prompt]
    # Planted with certainty where the pronoun follows the stereotype.
    assert all(drawn[row] == edits.matching[row] for row, pro in enumerate(follows) if pro)
    assert {edits.portraits[code].id for code in edits.portrait} == {edits.portraits[code].id for code in edits.second}


def test_judges_get_all_editors_edits_of_one_portrait_together_and_none_is_left_out(tmp_path: Path):
    second = 'use = "planted"\nseeds = [1, 2]\nparameters = { recolour = "both" }'
    loaded = load(tmp_path, editor=f'use = "planted"\nname = "one"\n[[editors]]\n{second}')
    requests = list(loaded.requests_by_portrait())
    alone = [request.key for named in loaded.editors for request in loaded.requests(named)]
    assert sorted(request.key for request in requests) == sorted(alone)
    changes = [request.portraits[0].id for request in requests]
    assert len(list(itertools.groupby(changes))) == len(set(changes))
