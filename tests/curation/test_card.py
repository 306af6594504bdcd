from __future__ import annotations

from pathlib import Path

import pytest

from stillme.curation.measuring import MeasuredPicture
from stillme.curation.sources import SourceRow
from stillme.curation.versions import DatasetCard, FinishedPortrait, Selected, markdown, slug


def test_the_card_has_the_terms_of_all_pictures():
    row = SourceRow(file="x", attributes={"race": "a"}, licence="a | b", label_origin="us", consent="yes")
    made = [
        FinishedPortrait(
            selected=Selected(id=f"p{place}", row=row, path=Path(__file__), sha256=""),
            sha256="",
            measured=MeasuredPicture(values={}, embedding=None, hash=place**7 % 2**64),
            enlarged=2.0,
            crop="face",
            box=(0, 0, 1),
        )
        for place in range(24)
    ]
    about = {"title": "set", "version": "v1", "made": "now", "source": "here", "method": "Cut."}
    text = markdown(DatasetCard(**about, portraits=made, curation=None, actions=()))
    assert r"| a \| b | us | yes | 24 |" in text


@pytest.mark.parametrize(
    ("text", "name"), [("East Asian", "east-asian"), ("70+", "70plus"), ("../x", "x"), ("", "unnamed")]
)
def test_ids_are_safe_file_names(text: str, name: str):
    assert slug(text) == name
