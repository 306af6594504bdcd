"""Several extractors, one prompt; or the reason why there is none."""

from __future__ import annotations

from stillme.core.types import Failed
from stillme.mitigation.features import Declined, Described, FeaturePrompt, Features, NoFeaturePrompt, Unusable, merge


def described(sentence: str, **dimensions: str) -> Described:
    return Described(features=Features(dimensions=dimensions, sentence=sentence))


FIRST = described("Maintain the person's oval face.", face_shape="oval")
SECOND = described("Maintain the person's round face and full lips.", face_shape="round", lips="full.", nose="broad")


def test_one_extractors_sentence_is_used_as_it_is():
    prompt = merge([("a", FIRST)])
    assert isinstance(prompt, FeaturePrompt)
    assert prompt.sentence == "Maintain the person's oval face."


def test_the_second_adds_what_the_first_left_out():
    prompt = merge([("a", FIRST), ("b", SECOND)])
    assert isinstance(prompt, FeaturePrompt)
    assert prompt.sentence == "Maintain the person's oval face. Also maintain the nose (broad) and lips (full)."
    assert prompt.dimensions == {"face_shape": "oval", "nose": "broad", "lips": "full."}
    assert set(prompt.by) == {"a", "b"}


def test_one_failed_extractor_leaves_no_feature_prompt():
    for failure, reason in (
        (Declined(reason="no people"), "b declined: no people"),
        (Unusable(problem="labels"), "b gave no usable answer: labels"),
        (Failed(error="broken file", retryable=False), "b failed: broken file"),
    ):
        assert merge([("a", FIRST), ("b", failure)]) == NoFeaturePrompt(reason=reason)


def test_only_an_outage_alone_is_retryable():
    outage = Failed(error="503", retryable=True)
    assert merge([("a", outage)]) == NoFeaturePrompt(reason="a failed: 503", retryable=True)
    both = merge([("a", outage), ("b", Declined(reason="no"))])
    assert isinstance(both, NoFeaturePrompt)
    assert not both.retryable


def test_labels_that_only_the_merged_sentence_has_are_found():
    person = described("Maintain the person's features, as the person is", distinctive_features="x")
    prompt = merge([("a", person), ("b", described("", hair="a woman's cut"))])
    assert isinstance(prompt, NoFeaturePrompt)
    assert "woman" in prompt.reason
