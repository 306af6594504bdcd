"""Arms are compared only where nothing else differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stillme.mitigation import NotPaired, differences, require_paired
from stillme.types import Arm, Request, Spec
from tests import records

EDITOR = Spec(use="flux", version="1", parameters={"steps": 28, "guidance": 4.0})
BASE = records.request(editor=EDITOR)
FEATURE = replace(BASE, arm=Arm.FEATURE, instruction="Maintain the person's face. Do O-01.")


def test_the_same_request_under_two_arms_is_paired():
    require_paired(BASE, FEATURE)


@pytest.mark.parametrize(
    ("other", "said"),
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
def test_anything_else_that_differs_is_refused_by_name(other: Request, said: str):
    assert list(differences(BASE, other)) == [said]
    with pytest.raises(NotPaired, match="Run both arms in one audit"):
        require_paired(BASE, other)


def test_a_picture_that_changed_under_its_name_is_noticed():
    swapped = replace(records.portrait(), image=records.portrait("other").image)
    assert list(differences(BASE, replace(FEATURE, portraits=(swapped,)))) == ["the picture of portrait p0"]
