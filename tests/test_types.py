from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.audit.design import assessment_key
from stillme.core.types import Arm, ImageFile, Spec, digest
from tests.records import portrait, prompt, request

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values))
def test_a_key_does_not_depend_on_the_order_of_entries(entries: dict[str, object]):
    backwards = dict(reversed(entries.items()))
    assert digest(entries) == digest(backwards)


@given(json_values, json_values)
def test_different_content_has_different_keys(one: object, other: object):
    # Python calls 1, 1.0 and True equal; as JSON they are not.
    assert (digest(one) == digest(other)) == (repr(one) == repr(other)) or one == other


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"arm": Arm.NOOP},
        {"instruction": "Do O-01!"},
        {"prompt": replace(prompt(), text="Do something else.")},
        {"editor": Spec(use="noop", version="2", parameters={})},
        {"editor": Spec(use="noop", version="1", parameters={"steps": 4})},
        {"portraits": (replace(portrait(), image=ImageFile(path=portrait().image.path, sha256="f" * 64)),)},
    ],
)
def test_whatever_can_change_the_outcome_changes_the_key(change: dict[str, object]):
    assert replace(request(), **change).key != request().key


def test_labels_are_part_of_the_key_only_where_the_editor_reads_them():
    labelled = replace(request(), portraits=(portrait(group="a"),))
    relabelled = replace(request(), portraits=(portrait(group="b"),))
    assert labelled.key == relabelled.key
    assert replace(labelled, attributes_matter=True).key != replace(relabelled, attributes_matter=True).key


names = st.text() | st.text("0123456789abcdefé", min_size=1)  # that of hexadecimal digits is written in a faster way


@given(request=names, image=names, judge=names, epoch=st.integers(0, 10_000))
def test_an_assessments_key_is_the_hash_of_its_canonical_json(request: str, image: str, judge: str, epoch: int):
    assert assessment_key(request, image, judge, epoch) == digest([request, image, judge, epoch])
