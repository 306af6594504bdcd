"""The model as extractor, with stand-ins: labels are asked about once more, and nothing is filled in."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from stillme.mitigation import Declined, Described, Unusable, extraction_key
from stillme.mitigation.asked import Answer, Asked, question_text
from stillme.portraits.synthetic import portraits
from stillme.types import Failed
from stillme.vlm import Answered, Malformed, ModelSettings, Question, Reply
from stillme.vlm import Declined as ModelDeclined

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


def answered(said: dict[str, str], cost: float = 0.01) -> Answered:
    return Answered(text=json.dumps(said), value=Answer.model_validate(said), effective={"model": "fake"}, cost=cost)


class Scripted:
    """Replies as written, in turn, and remembers what it was asked."""

    def __init__(self, replies: Sequence[Reply], **settings: object) -> None:
        self.settings = ModelSettings.model_validate(
            {"provider": "openai-chat", "base_url": "http://localhost:1/v1", "model": "fake", **settings}
        )
        self.replies = list(replies)
        self.questions: list[Question] = []
        self.closed = False

    def objections(self) -> list[str]:
        return []

    def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        return self.replies.pop(0)

    def close(self) -> None:
        self.closed = True


def extractor(*replies: Reply) -> tuple[Asked, Scripted]:
    model = Scripted(replies)
    return Asked("fake", model), model


def test_an_answer_becomes_features():
    asked, model = extractor(answered(GOOD))
    found = asked.extract(IMAGE)
    assert isinstance(found, Described)
    assert found.features.sentence.startswith("Maintain the person's deep brown skin"), "apostrophes are straightened"
    assert "distinctive_features" not in found.features.dimensions, "what the model cannot see is left out"
    assert found.raw == json.dumps(GOOD)
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
    for name in Answer.model_fields:
        assert f'"{name}":' in text


def test_labels_are_asked_about_once_more_with_the_reason():
    asked, model = extractor(answered(LABELLED), answered(GOOD))
    found = asked.extract(IMAGE)
    assert isinstance(found, Described)
    again = model.questions[1].parts[1]
    assert isinstance(again, str)
    assert "'woman' at character" in again
    assert "'Black' at character" in again
    assert found.cost == pytest.approx(0.02)
    assert found.raw == f"{json.dumps(LABELLED)}\n\n--- asked again ---\n\n{json.dumps(GOOD)}", (
        "the rejected answer is kept"
    )
    assert any("woman" in problem for problem in found.effective["rejected"])


def test_labels_twice_are_no_feature_prompt():
    asked, model = extractor(answered(LABELLED), answered(LABELLED))
    found = asked.extract(IMAGE)
    assert isinstance(found, Unusable)
    assert "'woman'" in found.problem
    assert len(model.questions) == 2
    assert found.cost == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("skin_tone", "White"),
        ("eyes", "typical East Asian eyes"),
        ("identity_prompt", "Keep the oval face."),
        ("identity_prompt", "Maintain the person's " + "very " * 100 + "round face."),
    ],
)
def test_every_field_is_looked_at(field: str, value: str):
    asked, model = extractor(answered({**GOOD, field: value}), answered(GOOD))
    assert isinstance(asked.extract(IMAGE), Described)
    assert field in str(model.questions[1].parts[1])


def test_a_refusal_is_declined_and_an_outage_is_not():
    asked, _ = extractor(ModelDeclined(reason="no people", kind="refusal", cost=0.5))
    assert asked.extract(IMAGE) == Declined(reason="refusal: no people", cost=0.5)
    asked, _ = extractor(Failed(error="503", retryable=True))
    assert asked.extract(IMAGE) == Failed(error="503", retryable=True)


def test_a_malformed_answer_is_unusable_with_its_text():
    asked, _ = extractor(Malformed(text="{", problem="no JSON"))
    found = asked.extract(IMAGE)
    assert isinstance(found, Unusable)
    assert found.raw == "{"


def test_an_outage_at_the_second_question_may_pass():
    asked, _ = extractor(answered(LABELLED), Failed(error="503", retryable=True, cost=0.0))
    assert asked.extract(IMAGE) == Failed(error="503", retryable=True, cost=0.01)


def test_the_key_changes_with_the_model_and_the_picture_and_not_with_the_pace():
    def key(place: int = 0, **settings: object) -> str:
        return extraction_key(portraits()[place].image, Asked("fake", Scripted([], **settings)).spec)

    assert key() == key(concurrency=3)
    assert len({key(), key(1), key(model="other"), key(temperature=0.5)}) == 4
