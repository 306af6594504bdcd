from __future__ import annotations

import pytest

from stillme.curation.measuring import Measured
from stillme.curation.selection import Selected, slug
from stillme.curation.versions import About, Card, FinishedPortrait, markdown


def test_the_card_has_the_terms_of_all_pictures():
    made = [
        FinishedPortrait(
            selected=Selected(
                id=f"p{place}",
                path=__file__,  # type: ignore[arg-type]
                sha256="",
                source="x",
                attributes={"race": "a"},
                licence="a | b",
                label_origin="us",
                consent="yes",
            ),
            sha256="",
            measured=Measured(values={}, embedding=None, hash=place**7 % 2**64),
            enlarged=2.0,
            crop="face",
            box=(0, 0, 1),
        )
        for place in range(24)
    ]
    about = About(title="set", version="v1", made="now", stillme="0", source="here", method="Cut.")
    text = markdown(Card.of(about, made))
    assert r"| a \| b | us | yes | 24 |" in text


@pytest.mark.parametrize(
    ("text", "name"), [("East Asian", "east-asian"), ("70+", "70plus"), ("../x", "x"), ("", "unnamed")]
)
def test_ids_are_safe_file_names(text: str, name: str):
    assert slug(text) == name
