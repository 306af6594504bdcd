"""Arms are compared only where nothing else differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stillme.core.types import Arm, Request, Spec
from stillme.mitigation.arms import NotPaired, differences, require_paired
from tests import records

EDITOR = Spec(use="flux", version="1", parameters={"steps": 28, "guidance": 4.0})
BASE = records.request(editor=EDITOR)
FEATURE = replace(BASE, arm=Arm.FEATURE, instruction="Maintain the person's face. Do O-01.")


def test_the_same_request_under_two_arms_is_paired():
    require_paired(BASE, FEATURE)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replace(FEATURE, seed=7), "seed: 0 and 7"),
        (replace(FEATURE, portraits=(records.portrait("p1"),)), "portrait: p0 and p1"),
        (replace(FEATURE, prompt=records.prompt("O-02")), "prompt: O-01 and O-02"),
        (replace(FEATURE, editor=replace(EDITOR, parameters={"steps": 50, "guidance": 4.0})), "steps: 28 and 50"),
        (replace(FEATURE, editor=replace(EDITOR, version="2")), "version of flux: 1 and 2"),
        (replace(FEATURE, editor=replace(EDITOR, use="qwen")), "editor: flux and qwen"),
        (BASE, "the arm is baseline in both"),
    ],
)
def test_any_other_difference_is_rejected_by_name(other: Request, difference: str):
    assert list(differences(BASE, other)) == [difference]
    with pytest.raises(NotPaired, match="Run both arms in one audit"):
        require_paired(BASE, other)


def test_an_image_that_changed_under_the_same_id_is_noticed():
    swapped = replace(records.portrait(), image=records.portrait("other").image)
    assert list(differences(BASE, replace(FEATURE, portraits=(swapped,)))) == ["the image of portrait p0"]
