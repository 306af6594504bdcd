"""The model as extractor, with a fake model; and several extractors, from which one prompt comes or a reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stillme.core.errors import StillmeError
from stillme.core.types import Failed
from stillme.judges.vlm import Malformed, ModelAnswered, ModelDeclined, ModelSettings, Question, Reply
from stillme.mitigation.features import (
    Declined,
    Described,
    FeaturePrompt,
    Features,
    NoFeaturePrompt,
    Unusable,
    extraction_key,
    merge,
)
from stillme.mitigation.measured import extractor_named, feature_prompt
from stillme.mitigation.model_extractor import FeatureAnswer, ModelExtractor, question_text
from stillme.portraits import portraits
from tests.records import must_be

IMAGE = portraits()[0].image
GOOD = {
    "skin_tone": "deep brown with warm undertones",
    "face_shape": "oval with a soft jawline",
    "eyes": "almond-shaped, dark brown",
    "nose": "broad with a low bridge",
    "lips": "full",
    "hair": "short, black, tightly coiled",
    "distinctive_features": "None.",
    "identity_prompt": "Maintain the person’s deep brown skin with warm undertones, oval face, and short black hair.",
}
LABELLED = {**GOOD, "identity_prompt": "Maintain the person's look as a young Black woman with deep brown skin."}


def answered(answer: dict[str, str], cost: float = 0.01) -> ModelAnswered:
    value = FeatureAnswer.model_validate(answer)
    return ModelAnswered(text=json.dumps(answer), value=value, effective={"model": "fake"}, cost=cost)


class Scripted:
    """A model with scripted replies that records its questions."""

    def __init__(self, replies: Sequence[Reply], **settings: object) -> None:
        self.settings = ModelSettings.model_validate(
            {"provider": "openai-chat", "base_url": "http://localhost:1/v1", "model": "fake", **settings}
        )
        self.replies = list(replies)
        self.questions: list[Question] = []
        self.closed = False

    def problems(self) -> list[str]:
        return []

    def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        return self.replies.pop(0)

    def close(self) -> None:
        self.closed = True


def extractor_of(*replies: Reply) -> tuple[ModelExtractor, Scripted]:
    model = Scripted(replies)
    return ModelExtractor("fake", model), model


def test_an_answer_becomes_features():
    extractor, model = extractor_of(answered(GOOD))
    extraction = must_be(Described, extractor.extract(IMAGE))
    assert extraction.features.sentence.startswith("Maintain the person's deep brown skin"), (
        "apostrophes are straightened"
    )
    assert "distinctive_features" not in extraction.features.dimensions, "what the model cannot see is left out"
    assert extraction.raw == json.dumps(GOOD)
    assert model.questions[0].system == question_text()
    assert model.questions[0].parts == (IMAGE,)


def test_the_question_is_the_papers():
    text = question_text()
    assert text.startswith(
        "Analyze this photo and extract key identity features that should be preserved during AI image"
    )
    assert "1. Skin tone (specific shade – e.g., “deep brown”, “olive”, “fair with warm undertones”)" in text
    assert "Start with 'Maintain the person's...'" in text
    assert text.endswith("The identity_prompt will be prepended to editing instructions.")
    for name in FeatureAnswer.model_fields:
        assert f'"{name}":' in text


def test_an_answer_with_labels_is_asked_again_with_the_reason():
    extractor, model = extractor_of(answered(LABELLED), answered(GOOD))
    extraction = must_be(Described, extractor.extract(IMAGE))
    again = model.questions[1].parts[1]
    assert isinstance(again, str)
    assert "'woman' at character" in again
    assert "'Black' at character" in again
    assert extraction.cost == pytest.approx(0.02)
    assert extraction.raw == f"{json.dumps(LABELLED)}\n\n--- asked again ---\n\n{json.dumps(GOOD)}", (
        "the rejected answer is kept"
    )
    assert any("woman" in problem for problem in extraction.effective["rejected"])


def test_labels_in_both_answers_are_unusable():
    extractor, model = extractor_of(answered(LABELLED), answered(LABELLED))
    extraction = must_be(Unusable, extractor.extract(IMAGE))
    assert "'woman'" in extraction.problem
    assert (len(model.questions), extraction.cost) == (2, pytest.approx(0.02))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("skin_tone", "colored"),
        ("eyes", "typical East Asian eyes"),
        ("identity_prompt", "Keep the oval face."),
        ("identity_prompt", "Maintain the person's " + "very " * 100 + "round face."),
    ],
)
def test_every_field_is_linted(field: str, value: str):
    extractor, model = extractor_of(answered({**GOOD, field: value}), answered(GOOD))
    assert isinstance(extractor.extract(IMAGE), Described)
    assert field in str(model.questions[1].parts[1])


OUTAGE = Failed(error="503", retryable=True)


@pytest.mark.parametrize(
    ("replies", "extraction"),
    [
        ([ModelDeclined(reason="no one", kind="refusal", cost=0.5)], Declined(reason="refusal: no one", cost=0.5)),
        ([OUTAGE], OUTAGE),
        ([answered(LABELLED), OUTAGE], replace(OUTAGE, cost=0.01)),
        ([Malformed(text="{", problem="no JSON")], Unusable(problem="malformed twice: no JSON", raw="{")),
    ],
    ids=["refusal", "outage", "outage at the second question", "no JSON"],
)
def test_a_refusal_is_declined_an_outage_is_retryable_and_what_cannot_be_read_unusable(
    replies: list[Reply], extraction: object
):
    extractor, _ = extractor_of(*replies)
    assert extractor.extract(IMAGE) == extraction


def test_the_key_depends_on_model_and_image_and_not_on_concurrency():
    def key(place: int = 0, **settings: object) -> str:
        return extraction_key(portraits()[place].image, ModelExtractor("fake", Scripted([], **settings)).spec)

    assert key() == key(concurrency=3)
    assert len({key(), key(1), key(model="other"), key(temperature=0.5)}) == 4


def described(sentence: str, **dimensions: str) -> Described:
    return Described(features=Features(dimensions=dimensions, sentence=sentence))


FIRST = described("Maintain the person's oval face.", face_shape="oval")
SECOND = described("Maintain the person's round face and full lips.", face_shape="round", lips="full.", nose="broad")


def test_the_second_adds_what_the_first_left_out():
    assert must_be(FeaturePrompt, merge([("a", FIRST)])).sentence == "Maintain the person's oval face."
    prompt = must_be(FeaturePrompt, merge([("a", FIRST), ("b", SECOND)]))
    assert prompt.sentence == "Maintain the person's oval face. Also maintain the nose (broad) and lips (full)."
    assert prompt.dimensions == {"face_shape": "oval", "nose": "broad", "lips": "full."}
    assert set(prompt.by) == {"a", "b"}


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Declined(reason="no people"), "b declined: no people"),
        (Unusable(problem="labels"), "b gave no usable answer: labels"),
        (Failed(error="broken file", retryable=False), "b failed: broken file"),
    ],
)
def test_one_failed_extractor_leaves_no_feature_prompt(failure: object, reason: str):
    assert merge([("a", FIRST), ("b", failure)]) == NoFeaturePrompt(reason=reason)


def test_only_an_outage_alone_is_retryable():
    assert merge([("a", OUTAGE)]) == NoFeaturePrompt(reason="a failed: 503", retryable=True)
    assert not must_be(NoFeaturePrompt, merge([("a", OUTAGE), ("b", Declined(reason="no"))])).retryable


def test_labels_that_only_the_merged_sentence_has_are_found():
    person = described("Maintain the person's features, as the person is", distinctive_features="x")
    prompt = merge([("a", person), ("b", described("", hair="a woman's cut"))])
    assert "woman" in must_be(NoFeaturePrompt, prompt).reason


def test_a_model_and_the_instruments_together_make_one_prompt():
    extractor, _ = extractor_of(answered({**GOOD, "face_shape": "not visible"}))
    prompt = feature_prompt(IMAGE, [extractor, "measured"])
    assert prompt.sentence.endswith(" Also maintain the face shape (oval face).")
    assert set(prompt.by) == {"fake", "measured"}


@pytest.mark.parametrize("name", ["gpt-5-mini", "gemini-3-flash", "claude"])
def test_every_preset_of_a_model_can_describe(name: str):
    extractor = extractor_named(name)
    assert (extractor.spec.use, type(extractor)) == (name, ModelExtractor)
    extractor.close()


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("gemini-3-flsh", {}, "Did you mean 'gemini-3-flash'"),
        ("openai-compatible", {"model": "qwen"}, "base_url"),
        ("measured", {"model": "qwen"}, "no parameters"),
    ],
)
def test_a_mistyped_extractor_is_named_with_the_nearest(name: str, settings: dict[str, str], words: str):
    with pytest.raises(StillmeError, match=words):
        extractor_named(name, settings)
