from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.colour import delta_e, lab_to_linear, to_srgb
from stillme.core.types import Abstained
from stillme.instruments import faces
from stillme.instruments.measurements import measure
from stillme.instruments.skin import Skin, compare_skin, read_skin
from tests.instruments.known_changes import background_tinted, clothes_tinted, exposed, lighter, one, some


@pytest.mark.parametrize(("shift", "stops"), [(-12, 0.4), (12, -0.4)])
def test_a_planted_shift_is_recovered_under_any_exposure(shift: float, stops: float) -> None:
    """Where a plain wall and dark clothes cannot show the light on this skin, abstaining is right."""
    found = [measure(rgb, exposed(lighter(rgb, shift), stops)) for rgb in some(4)]
    recovered = [measured.values["skin_delta_l"] for measured in found if measured.light.known]
    assert len(recovered) >= 2
    assert recovered == pytest.approx([shift] * len(recovered), abs=2)


def test_a_new_background_alone_is_no_change_of_light() -> None:
    for colour, limit in (((30, 60, 200), 1.5), ((20, 20, 20), 0.64)):
        measured = measure(one(), background_tinted(one(), colour))
        assert measured.light.witnesses == "hair, clothes", measured.light.note
        assert abs(measured.values["skin_delta_l"]) < limit


def test_skin_abstains_where_the_light_is_unknown_and_says_why() -> None:
    """Hair and clothes grew brighter before the same background: a lamp on the person, or an edit of all of them."""
    rgb = one()
    person = faces.person_mask(rgb)[..., None] > 0.5
    measured = measure(rgb, np.where(person, exposed(rgb, 0.5), rgb))
    assert not measured.light.known
    assert measured.details["light_unknown"] == measured.light.note
    assert measured.abstained["skin_delta_l"] == f"light unknown: {measured.light.note}"
    assert not {"skin_delta_l", "skin_delta_e", "skin_delta_ita"} & set(measured.values)


def test_recoloured_clothes_do_not_disturb_the_light() -> None:
    measured = measure(one(), exposed(clothes_tinted(one(), (200, 30, 30)), -0.4))
    assert not measured.light.known or abs(measured.values["skin_delta_l"]) < 1.5
    measured = measure(one(), clothes_tinted(one(), (200, 30, 30)))
    assert measured.light.known
    assert abs(measured.values["skin_delta_l"]) < 0.64


def test_skin_that_the_edit_spared_does_not_dilute_the_shift() -> None:
    rgb = one()
    shifted = lighter(rgb, 8)
    rows = np.arange(rgb.shape[0])[:, None, None]
    eyes = float(faces.find(rgb)[0].points[:2, 1].mean())
    half = np.where(rows > eyes - 0.1 * rgb.shape[0], shifted, rgb)
    assert measure(rgb, half).values["skin_delta_l"] == pytest.approx(8, abs=0.8)


def plain(level: int, side: int = 40) -> Skin | Abstained:
    return read_skin(np.full((side, side, 3), level, dtype=np.uint8), np.ones((side, side), dtype=np.bool_))


def test_overexposed_skin_and_a_few_pixels_are_not_measured_and_ita_is_left_empty_where_b_says_nothing() -> None:
    white, grey = plain(255), plain(120)
    for paired in (True, False):
        assert isinstance(compare_skin(white, white, white.linear, paired=paired), Abstained)
    assert isinstance(plain(0, side=10), Abstained)
    assert isinstance(compare_skin(grey, grey, grey.linear, paired=True).delta_ita, Abstained)


@given(
    lightness=st.floats(25, 75),
    shift=st.floats(-12, 12),
    paired=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_shift_of_any_skin_is_recovered(lightness: float, shift: float, paired: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    lab = np.stack([random.normal(lightness, 4, 2500), random.normal(12, 1, 2500), random.normal(16, 1, 2500)], axis=1)
    lab = lab.reshape(50, 50, 3).astype(np.float32)
    everything = np.ones((50, 50), dtype=np.bool_)
    before = read_skin(to_srgb(lab_to_linear(lab)), everything)
    after = read_skin(to_srgb(lab_to_linear(lab + np.array([shift, 0, 0], dtype=np.float32))), everything)
    assert isinstance(after, Skin)
    change = compare_skin(before, after, before.linear, paired=paired)
    assert change.delta_l == pytest.approx(shift, abs=0.8)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((50, 2.5, 0), (56, -27, -3), 31.9030),
        ((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619), 2.0373),
    ],
)
def test_delta_e_agrees_with_the_published_examples(a: tuple, b: tuple, expected: float) -> None:
    assert float(delta_e(np.array(a), np.array(b))) == pytest.approx(expected, abs=1e-4)
