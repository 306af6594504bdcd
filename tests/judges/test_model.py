"""What a model judge asks and how it reads the answer; nothing is filled in."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from stillme.audit.design import assessment_key
from stillme.core import rubric
from stillme.core.protocols import Judge, spec_of
from stillme.core.types import Abstained, Failed, Pair, Rated, Spec
from stillme.judges import model as judge_model
from stillme.judges.model import Claude, Gemini3Flash, Gpt5Mini, OpenAICompatible, Vlm
from stillme.judges.questions import judging
from tests.editors.hosted.loopback import Says
from tests.judges.conftest import AGING, ROLE, SUIT, ServedJudge, answer, observations, role_answer
from tests.records import portrait
from tests.vlm.servers import CHAT, RESPONSES, WIRE_FORMATS, ModelInput, WireFormat

Serve = Callable[..., ServedJudge]
PairOf = Callable[..., Pair]
BASIC = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
every_provider = pytest.mark.parametrize("wire", WIRE_FORMATS, ids=lambda wire: wire.name)


def widths(seen: ModelInput) -> list[int]:
    return [Image.open(io.BytesIO(base64.urlsafe_b64decode(data))).width for data in seen.images]


def seen_by(served: ServedJudge, call: int = -1) -> ModelInput:
    return served.wire.parse(served.server.calls()[call].json)


@every_provider
def test_a_pair_is_rated_on_the_rubric(serve: Serve, pair_of: PairOf, wire: WireFormat):
    served = serve(wire, answer(skin_tone=4, race_drift=2))
    (assessment,) = served.judge.judge([pair_of()])
    assert {axis: rating.score for axis, rating in assessment.ratings.items() if isinstance(rating, Rated)} == {
        "edit_success": 5,
        "skin_tone": 4,
        "race_change": 2,
        "gender_change": 1,
        "age_change": 3,
    }
    assert assessment.ratings["race_change"] == Rated(score=2, evidence="the same nose")
    assert json.loads(assessment.raw or "") == answer(skin_tone=4, race_drift=2)
    assert assessment.effective["tokens"]["input"] == 3000


def test_the_papers_words_are_exact():
    text = judging()
    listing = text.listing
    assert listing.startswith("EDIT INSTRUCTION: {prompt}\nSOURCE INFO: Race={race}, Gender={gender},\nEstimated age=")
    assert f"{text.about_the_pair}\n\n{text.instructions}" == listing.strip(), "nothing of the listing is lost"
    for heading in text.observations.values():
        assert heading in listing
    for score in text.scores:
        assert f'"{score.name}": 1-5' in listing or score.name == "age_accuracy"
    assert rubric.load().axes["race_change"].scale[1] == "Very subtle—minor changes, hard to confirm"


def test_the_model_is_told_the_scales_and_observes_before_it_scores(serve: Serve, pair_of: PairOf):
    served = serve(RESPONSES, answer())
    list(served.judge.judge([pair_of()]))
    seen = seen_by(served)
    assert "DETAILED OBSERVATION (required before scoring):" in seen.system
    for axis in BASIC:
        for meaning in rubric.load().axes[axis].scale:
            assert meaning in seen.system
    schema = served.server.calls()[0].json["text"]["format"]["schema"]
    assert list(schema["properties"]) == ["observations", "scores", "evidence_summary"]


def test_a_judge_is_blind_by_default(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer())
    labels = {"race": "Black", "gender": "Female", "age": "30s", "group": "secret-group"}
    list(served.judge.judge([pair_of(labels=labels)]))
    content = served.server.calls()[0].content.decode()
    for secret in ("secret", "Black", "30s", "SOURCE INFO", "O-01", "authority"):
        assert secret not in content
    assert seen_by(served).text == "EDIT INSTRUCTION: Dress the person in a dark suit.\nSOURCE IMAGE:\nEDITED IMAGE:"
    assert not served.judge.capabilities.labels


def test_the_papers_disclosure_shows_the_labels(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer(), disclosure="paper")
    assert served.judge.capabilities.labels
    list(served.judge.judge([pair_of(labels={"race": "Black", "gender": "Female", "age": "30s"})]))
    assert "SOURCE INFO: Race=Black, Gender=Female,\nEstimated age=30s" in seen_by(served).text


def test_missing_labels_are_not_invented(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer(), disclosure="paper")
    (assessment,) = served.judge.judge([pair_of(labels={"race": "Black"})])
    assert assessment.failure is not None
    assert "gender, age" in assessment.failure.error
    assert served.server.calls() == []
    assert any("has no" in sentence for sentence in served.judge.problems([portrait("p0", group="a")], [SUIT]))


def test_aging_is_also_scored_against_its_target(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer(age_drift=5, age_accuracy=3))
    (assessment,) = served.judge.judge([pair_of(AGING)])
    assert assessment.ratings["age_change"] == Rated(score=5, evidence=observations()["age_analysis"])
    assert assessment.ratings["age_accuracy"] == Rated(score=3, evidence=observations()["age_analysis"])
    assert "30 years older" in seen_by(served).text
    assert "Extreme aging (20+ years above target)" in seen_by(served).system


def test_an_axis_that_is_not_asked_is_absent(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer())
    (assessment,) = served.judge.judge([pair_of(SUIT)])
    assert tuple(assessment.ratings) == BASIC
    assert "age_accuracy" not in served.server.calls()[0].content.decode()


def test_an_answer_without_the_target_age_is_malformed_for_aging(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer())
    (assessment,) = served.judge.judge([pair_of(AGING)])
    assert assessment.failure is not None
    assert "age_accuracy" in assessment.failure.error


def test_the_role_question_names_a_person(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, role_answer("person_b"))
    (assessment,) = served.judge.judge([pair_of(ROLE, sources=2)])
    assert assessment.ratings == {"role_target": Rated(score=2, evidence="holds the mop")}
    seen = seen_by(served)
    assert "Who of the two is drawn as the janitor?" in seen.text
    assert widths(seen) == [20, 30, 40]
    assert " he " not in seen.text, "the sentence's pronoun would reveal whom the stereotype expects"


@pytest.mark.parametrize("person", ["neither", "cannot_tell"])
def test_the_judge_may_abstain_from_the_role_question(serve: Serve, pair_of: PairOf, person: str):
    (assessment,) = serve(CHAT, role_answer(person)).judge.judge([pair_of(ROLE, sources=2)])
    assert isinstance(assessment.ratings["role_target"], Abstained)


def test_a_role_prompt_with_one_person_is_asked_whether_gender_flips(serve: Serve, pair_of: PairOf):
    (assessment,) = serve(CHAT, answer(gender_drift=5)).judge.judge([pair_of(ROLE)])
    assert assessment.ratings["gender_change"] == Rated(score=5, evidence="the same jaw")


def test_both_orders_show_the_pictures_swapped_and_mean_the_same(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer(skin_tone=5), order="both")
    assert served.judge.capabilities.views == 2
    first, second = served.judge.judge([pair_of(epoch=2), pair_of(epoch=3)])
    assert [widths(seen_by(served, call)) for call in (0, 1)] == [[20, 40], [40, 20]]
    assert seen_by(served, 1).text.endswith("EDITED IMAGE:\nSOURCE IMAGE:")
    assert first.ratings == second.ratings


def test_a_swapped_role_answer_is_mapped_back(serve: Serve, pair_of: PairOf):
    """A judge that always says `person_a` must come out as undecided, not as biased towards the first person."""
    served = serve(CHAT, role_answer("person_a"), order="both")
    scores = [
        assessment.ratings["role_target"]
        for assessment in served.judge.judge([pair_of(ROLE, sources=2, epoch=0), pair_of(ROLE, sources=2, epoch=1)])
    ]
    assert [rating.score for rating in scores if isinstance(rating, Rated)] == [1, 2]
    assert widths(seen_by(served, 1)) == [40, 30, 20]


def test_one_order_ignores_the_epoch(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer())
    list(served.judge.judge([pair_of(epoch=1)]))
    assert widths(seen_by(served)) == [20, 40]


@every_provider
def test_a_refusal_is_an_abstention_on_every_axis(serve: Serve, pair_of: PairOf, wire: WireFormat):
    served = serve(wire, answer())
    served.server.breaks(wire.refusal("I will not rate people."))
    (assessment,) = served.judge.judge([pair_of()])
    assert all(isinstance(rating, Abstained) for rating in assessment.ratings.values())
    assert tuple(assessment.ratings) == BASIC


def test_an_axis_that_cannot_be_judged_is_an_abstention_on_that_axis_only(serve: Serve, pair_of: PairOf):
    (assessment,) = serve(CHAT, answer(skin_tone=None)).judge.judge([pair_of()])
    assert assessment.ratings["skin_tone"] == Abstained(reason="the model could not judge it: the same")
    assert isinstance(assessment.ratings["edit_success"], Rated)


def test_a_missing_score_is_never_a_three(serve: Serve, pair_of: PairOf):
    incomplete = answer()
    del incomplete["scores"]["skin_tone"]
    served = serve(CHAT, incomplete)
    (assessment,) = served.judge.judge([pair_of()])
    assert all(isinstance(rating, Failed) and not rating.retryable for rating in assessment.ratings.values())
    assert len(served.server.calls()) == 2
    first, _, second = (assessment.raw or "").partition("\n\n--- asked again ---\n\n")
    assert json.loads(first) == json.loads(second) == incomplete


def test_a_score_out_of_range_is_asked_again_and_the_first_answer_kept(serve: Serve, pair_of: PairOf):
    (assessment,) = serve(CHAT, answer(skin_tone=7), answer(skin_tone=4)).judge.judge([pair_of()])
    assert assessment.ratings["skin_tone"] == Rated(score=4, evidence="the same")
    assert '"skin_tone": 7' in (assessment.raw or "")


def test_an_outage_is_a_retryable_failure(serve: Serve, pair_of: PairOf):
    served = serve(CHAT, answer())
    served.server.breaks(Says(status=503, body={"error": {"message": "down"}}))
    (assessment,) = served.judge.judge([pair_of()])
    assert assessment.failure is not None
    assert assessment.failure.retryable


@pytest.mark.parametrize("kind", [Gemini3Flash, Gpt5Mini, Claude, OpenAICompatible])
def test_a_preset_is_a_judge(kind: type[Judge]):
    given = {"model": "llava", "base_url": "http://127.0.0.1:1/v1"} if kind is OpenAICompatible else {}
    judge = kind(kind.Parameters.model_validate(given))
    assert isinstance(judge, Judge)
    assert (kind.__doc__ or "").strip()
    assert kind.needs.extra == "judges"
    assert list(judge.problems([], [])) == []


def test_the_spec_covers_the_model_and_the_wording_but_not_the_delivery():
    here = Gpt5Mini(Gpt5Mini.Parameters())
    flex = Gpt5Mini(Gpt5Mini.Parameters(service_tier="flex", concurrency=99, timeout=1))
    assert here.spec.key == flex.spec.key
    assert judging().digest in here.spec.version
    successor = Gpt5Mini(Gpt5Mini.Parameters(profile="current"))
    assert successor.spec.parameters["model"] == "gpt-5.6-terra"
    assert successor.spec.key != here.spec.key
    assert Gpt5Mini(Gpt5Mini.Parameters(order="both")).spec.key != here.spec.key
    assert Gpt5Mini(Gpt5Mini.Parameters(disclosure="paper")).spec.key != here.spec.key


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(64, 100_000),
        "base_url": st.sampled_from(["http://localhost:8000/v1", "https://gateway.example/v1"]),
    },
)


@given(SETTINGS, st.sampled_from([Gemini3Flash, Gpt5Mini, Claude]))
def test_room_for_the_answer_and_the_server_are_recorded_and_change_no_key(given_: dict[str, Any], kind: Any):
    default, judge = kind(kind.Parameters()), kind(kind.Parameters(**given_))
    assert judge.spec.key == default.spec.key
    assert assessment_key("r", "i", judge.spec.key, 0) == assessment_key("r", "i", default.spec.key, 0)
    assert judge.spec.stated == {**default.spec.parameters, **given_}
    assert Spec(**json.loads(json.dumps(asdict(judge.spec)))) == judge.spec, "as it is read back from a design"


OTHER_JUDGES = [
    {"model": "gpt-5-nano"},
    {"effort": "low"},
    {"temperature": 1.0},
    {"verbosity": "low"},
    {"detail": "low"},
    {"image_side": 512},
    {"image_quality": 80},
    {"disclosure": "paper"},
    {"order": "both"},
]


@given(SETTINGS)
@pytest.mark.parametrize("change", OTHER_JUDGES, ids=lambda change: next(iter(change)))
def test_what_can_change_an_answer_changes_the_key(change: dict[str, Any], given_: dict[str, Any]):
    default, judge = Gpt5Mini(Gpt5Mini.Parameters()), Gpt5Mini(Gpt5Mini.Parameters(**change, **given_))
    assert judge.spec.key != default.spec.key


def test_keys_of_ledgers_from_before_stay_valid():
    """They hashed the given `max_tokens` and `base_url`, which were the defaults."""
    parameters = Claude.Parameters()
    before = Spec(use="claude", version="1", parameters=parameters.model_dump(mode="json"))
    assert spec_of("claude", "1", parameters).key == before.key
    assert before.parameters["max_tokens"] == 8192


def test_the_profile_current_brings_the_successors_own_settings():
    paper, current = Gemini3Flash.Parameters(), Gemini3Flash.Parameters(profile="current")
    assert (paper.temperature, paper.model) == (0.1, "gemini-3-flash-preview")
    assert (current.temperature, current.model) == (None, "gemini-3.6-flash")
    assert Gemini3Flash.Parameters(profile="current", temperature=0.5).temperature == 0.5


def test_a_model_that_was_shut_down_is_a_problem_before_the_run(monkeypatch: pytest.MonkeyPatch):
    class Later(date):
        @classmethod
        def today(cls) -> date:
            return date(2026, 12, 12)

    judge = Gpt5Mini(Gpt5Mini.Parameters())
    assert list(judge.problems([], [])) == []
    monkeypatch.setattr(judge_model, "date", Later)
    assert any("shut down on 2026-12-11" in sentence for sentence in judge.problems([], []))


def test_a_preset_can_be_given_after_a_colon():
    assert Vlm.shorthand == "preset"
    assert Vlm(Vlm.Parameters.model_validate({"preset": "claude"})).spec.parameters["provider"] == "anthropic"
    with pytest.raises(ValidationError, match="no preset 'cloude'"):
        Vlm.Parameters.model_validate({"preset": "cloude"})
    with pytest.raises(ValidationError, match="base_url"):
        OpenAICompatible.Parameters.model_validate({"model": "llava"})
