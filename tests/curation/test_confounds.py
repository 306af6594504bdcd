from __future__ import annotations

import numpy as np
import pytest

from stillme.curation.card import About, Card, FinishedPortrait
from stillme.curation.card_text import markdown
from stillme.curation.confounds import FLAG, compare_groups
from stillme.curation.evenness import compare_with_blind
from stillme.curation.measuring import Measured
from stillme.curation.selection import Selected, slug


def portraits(darker: float, seed: int) -> tuple[list[str], list[dict[str, float]]]:
    rng = np.random.default_rng(seed)
    groups = ["a"] * 12 + ["b"] * 12
    values = [
        {
            "skin_l": rng.normal(60 if group == "a" else 30, 5),
            "background_l": rng.normal(50 - (darker if group == "b" else 0), 10),
            "sharpness": rng.normal(4, 1),
            "yaw": rng.normal(0, 5),
        }
        for group in groups
    ]
    return groups, values


def test_one_groups_darker_pictures_are_pointed_out():
    comparisons = {comparison.prop.key: comparison for comparison in compare_groups(*portraits(30, 1))}
    assert comparisons["background_l"].flagged
    assert comparisons["background_l"].explained == pytest.approx(0.7, abs=0.25)
    assert not comparisons["sharpness"].flagged


def test_skin_that_differs_is_shown_but_is_no_fault():
    comparisons = {comparison.prop.key: comparison for comparison in compare_groups(*portraits(0, 2))}
    assert comparisons["skin_l"].chance is not None
    assert comparisons["skin_l"].chance < FLAG
    assert not comparisons["skin_l"].flagged


def test_chance_alone_is_pointed_out_as_rarely_as_it_says():
    flagged = sum(comparison.flagged for seed in range(60) for comparison in compare_groups(*portraits(0, seed)))
    assert flagged <= 8  # 180 comparisons at 1 %


def test_the_same_rows_give_the_same_chance():
    groups, values = portraits(8, 3)
    first, second = (compare_groups(groups, values) for _ in range(2))
    assert [comparison.chance for comparison in first] == [comparison.chance for comparison in second]


def test_what_cannot_be_compared_is_left_open():
    comparisons = compare_groups(["a", "b", "c"], [{"skin_l": 1.0}, {}, {"skin_l": 2.0}])
    assert {comparison.chance for comparison in comparisons} == {None}
    assert comparisons[0].text("b") == "–"


def test_the_card_says_which_property_is_confounded_with_which_attribute():
    groups, values = portraits(30, 1)
    made = [
        FinishedPortrait(
            selected=Selected(
                id=f"p{place}",
                path=__file__,  # type: ignore[arg-type]
                sha256="",
                source="x",
                attributes={"race": group},
                licence="a | b",
                label_origin="us",
                consent="yes",
            ),
            sha256="",
            measured=Measured(values=value, embedding=None, hash=place**7 % 2**64),
            enlarged=2.0,
            crop="face",
            box=(0, 0, 1),
        )
        for place, (group, value) in enumerate(zip(groups, values, strict=True))
    ]
    about = About(title="set", version="v1", made="now", stillme="0", source="here", method="Cut.")
    text = markdown(Card.of(about, made))
    assert "**Confounded with race: background L*" in text
    assert r"| a \| b | us | yes | 24 |" in text


def choices(counts: dict[int, int]) -> list[tuple[int, list[tuple[int]]]]:
    return [(place - 1, [(option,) for option in counts]) for place, count in counts.items() for _ in range(count)]


def test_the_papers_pools_are_no_more_uneven_than_chance():
    """Pool 3 was chosen three times as often as pool 5 (Table 9); of 84 choices that happens by chance."""
    spread = compare_with_blind(choices({1: 12, 2: 9, 3: 21, 4: 13, 5: 7, 6: 10, 7: 12}))
    assert spread.expected[3] == 12
    # Pearson's chi-squared with six degrees of freedom gives .125.
    assert spread.chance == pytest.approx(0.125, abs=0.03)


def test_choosing_whoever_stands_first_is_found_out():
    spread = compare_with_blind(choices({1: 60, 2: 12, 3: 12}))
    assert spread.chance is not None
    assert spread.chance < 0.001


def test_a_picture_of_two_pools_counts_for_both():
    spread = compare_with_blind([(0, [(1, 2), (3,)]), (0, [(1, 2), (3,)])])
    assert (spread.chosen, spread.expected) == ({1: 2, 2: 2, 3: 0}, {1: 1.0, 2: 1.0, 3: 1.0})


def test_a_single_option_tells_nothing():
    assert compare_with_blind([(0, [(1,)])]).chance is None
    assert compare_with_blind([]).chance is None


@pytest.mark.parametrize(
    ("text", "name"), [("East Asian", "east-asian"), ("70+", "70plus"), ("../x", "x"), ("", "unnamed")]
)
def test_ids_are_safe_file_names(text: str, name: str):
    assert slug(text) == name
