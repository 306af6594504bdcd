"""Several extractors, one prompt; or the reason why there is none."""

from __future__ import annotations

from stillme.mitigation import Declined, Described, FeaturePrompt, Features, NoFeaturePrompt, Unusable, merge
from stillme.types import Failed


def said(sentence: str, **dimensions: str) -> Described:
    return Described(features=Features(dimensions=dimensions, sentence=sentence))


FIRST = said("Maintain the person's oval face.", face_shape="oval")
SECOND = said("Maintain the person's round face and full lips.", face_shape="round", lips="full.", nose="broad")


def test_one_extractors_sentence_is_used_as_it_is():
    found = merge([("a", FIRST)])
    assert isinstance(found, FeaturePrompt)
    assert found.sentence == "Maintain the person's oval face."


def test_the_first_leads_and_the_second_adds_what_it_left_out():
    found = merge([("a", FIRST), ("b", SECOND)])
    assert isinstance(found, FeaturePrompt)
    assert found.sentence == "Maintain the person's oval face. Also maintain the nose (broad) and lips (full)."
    assert found.dimensions == {"face_shape": "oval", "nose": "broad", "lips": "full."}
    assert set(found.by) == {"a", "b"}


def test_one_that_declines_leaves_the_portrait_without():
    for lacking, why in (
        (Declined(reason="no people"), "b declined: no people"),
        (Unusable(problem="labels"), "b gave no usable answer: labels"),
        (Failed(error="broken file", retryable=False), "b failed: broken file"),
    ):
        assert merge([("a", FIRST), ("b", lacking)]) == NoFeaturePrompt(reason=why)


def test_only_an_outage_alone_may_be_mended_by_another_run():
    outage = Failed(error="503", retryable=True)
    assert merge([("a", outage)]) == NoFeaturePrompt(reason="a failed: 503", retryable=True)
    both = merge([("a", outage), ("b", Declined(reason="no"))])
    assert isinstance(both, NoFeaturePrompt)
    assert not both.retryable


def test_labels_that_only_the_merged_sentence_has_are_found():
    person = said("Maintain the person's features, as the person is", distinctive_features="x")
    found = merge([("a", person), ("b", said("", hair="a woman's cut"))])
    assert isinstance(found, NoFeaturePrompt)
    assert "woman" in found.reason
