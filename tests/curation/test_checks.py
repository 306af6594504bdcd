"""What instruments doubt about a candidate, and the page that says so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from stillme.core.colour import to_linear, to_srgb
from stillme.core.errors import StillmeError
from stillme.core.images import read_rgb
from stillme.curation.measuring import (
    CriterionMeasure,
    Hint,
    MeasuredPicture,
    check_missing,
    find_similar,
    hints,
    load_criteria,
    measure,
    picture_hash,
    read_checks,
)
from stillme.curation.pools import Pools
from stillme.curation.versions import METHODS
from stillme.instruments.faces.raster import Picture
from tests.curation.conftest import RENDERS


def render(name: str) -> Picture:
    return read_rgb(RENDERS / f"{name}.webp")


def doubts(rgb: Picture) -> dict[str, str]:
    return {hint.criterion.key: hint.text for hint in hints(measure(rgb).values) if hint.state == "doubt"}


@pytest.mark.parametrize("name", ["A_f_33", "B_m_53", "D_f_63"])
def test_a_frontal_even_neutral_render_raises_no_doubt(name: str):
    assert doubts(render(name)) == {}


def test_a_tilted_head_is_doubted_by_its_angle():
    turned = np.asarray(Image.fromarray(render("B_f_33")).rotate(-25, resample=Image.Resampling.BICUBIC))
    values = measure(turned).values
    assert values["roll"] == pytest.approx(25, abs=2)
    assert doubts(turned)["upright"].startswith("head tilted 2")


def test_mirroring_a_face_turns_yaw_and_roll_around():
    face = np.asarray(Image.fromarray(render("C_m_43")).rotate(8, resample=Image.Resampling.BICUBIC))
    straight, mirrored = measure(face).values, measure(np.ascontiguousarray(face[:, ::-1])).values
    assert mirrored["roll"] == pytest.approx(-straight["roll"], abs=1)
    assert mirrored["yaw"] == pytest.approx(-straight["yaw"], abs=3)
    assert mirrored["pitch"] == pytest.approx(straight["pitch"], abs=3)


def test_blur_is_doubted():
    blurred = np.asarray(Image.fromarray(render("B_m_33")).filter(ImageFilter.GaussianBlur(8)))
    assert set(doubts(blurred)) == {"focus"}


def test_a_dark_side_is_doubted_in_stops():
    face = render("B_f_43")
    light = to_linear(face).copy()
    light[:, : face.shape[1] // 2] /= 2**2.5
    doubted = doubts(to_srgb(light))
    assert "lighting" in doubted
    assert measure(to_srgb(light)).values["side_light"] == pytest.approx(2.5, abs=0.8)


def test_darker_exposure_alone_raises_no_doubt():
    """A threshold on brightness would turn away dark skin; there is none."""
    for name in ("A_f_43", "B_f_43"):
        darker = to_srgb(to_linear(render(name)) / 2)
        assert "lighting" not in doubts(darker)


def test_a_face_cut_off_or_hidden_is_doubted():
    face = render("B_m_43")
    cut = np.ascontiguousarray(face[:, face.shape[1] // 2 - 20 :])
    assert "features" in doubts(cut)
    covered = face.copy()
    covered[face.shape[0] * 3 // 10 : face.shape[0] * 11 // 24] = (10, 10, 12)
    assert "features" in doubts(covered)


def test_without_a_face_only_visibility_is_judged():
    without_face = hints(measure(np.full((200, 200, 3), 120, dtype=np.uint8)).values)
    unknown = dict.fromkeys(("frontal", "focus", "lighting", "expression", "upright"), "unknown")
    assert {hint.criterion.key: hint.state for hint in without_face} == {**unknown, "features": "doubt"}


def test_numbers_are_said_in_units_people_read():
    (hint,) = [hint for hint in hints({"roll": -12.4}) if hint.criterion.key == "upright"]
    assert isinstance(hint, Hint)
    assert hint.text == "head tilted −12°"


def test_checks_are_kept_and_only_the_missing_are_made(pools: Pools):
    file = pools.folder / "checks.jsonl"
    lines = file.read_text().splitlines()
    assert len(lines) == 12
    # The last line was cut short by a crash, another is of an older method.
    file.write_text(
        "\n".join([*lines[:9], lines[9].replace('"method":"2"', '"method":"1"'), lines[10], lines[11][:50]])
    )
    made: list[int] = []
    checks = check_missing(pools, watch=lambda done, total: made.append(total))
    assert made == [2, 2]
    assert {candidate.sha256 for candidate in pools.candidates} == set(checks) == set(read_checks(pools.folder))


def test_a_candidate_that_is_gone_is_one_sentence(pools: Pools):
    (pools.folder / "checks.jsonl").unlink()
    pools.path_of(pools.candidates[0]).unlink()
    with pytest.raises(StillmeError, match="missing or damaged"):
        check_missing(pools)


def test_the_same_picture_is_found_again_after_resizing_and_recompressing(pools: Pools, tmp_path: Path):
    first = pools.candidates[0]
    Image.fromarray(read_rgb(pools.path_of(first))).resize((500, 500)).save(tmp_path / "again.jpg", quality=70)
    again = read_rgb(tmp_path / "again.jpg")
    known = read_checks(pools.folder)[first.sha256]
    assert (picture_hash(again) ^ known.hash).bit_count() <= 6
    (pair,) = find_similar({"once": known, "again": measure(again)})
    assert (pair.kind, pair.first, pair.second, pair.words) == ("picture", "once", "again", "one picture")


def test_the_same_face_is_found_in_another_frame():
    face = render("C_f_43")
    other = np.ascontiguousarray(to_srgb(to_linear(face) * 0.8)[60:, 90:])
    (pair,) = find_similar({"face": measure(face), "other": measure(other)})
    assert pair.kind == "person"
    assert pair.distance < 0.37


def test_people_photographed_alike_are_not_one_picture():
    """Matched renders share light, pose, clothes and background; only the person differs."""
    first, second = measure(render("A_f_33")), measure(render("B_f_33"))
    assert find_similar({"a": first, "b": second}) == ()
    faceless = {name: MeasuredPicture(values={}, embedding=None, hash=first.hash) for name in "ab"}
    (pair,) = find_similar(faceless)
    assert (pair.kind, pair.distance) == ("picture", 0)


def test_pictures_without_a_face_are_never_one_person():
    nobody = MeasuredPicture(values={"faces": 0.0}, embedding=None, hash=0)
    other = MeasuredPicture(values={"faces": 0.0}, embedding=None, hash=2**64 - 1)
    assert find_similar({"a": nobody, "b": other}) == ()


PAGE = (Path(__file__).parents[2] / "docs" / "curation.md").read_text()


def limits(measure: CriterionMeasure) -> str:
    least, most = (f"{value:g}".replace("-", "−") for value in (measure.least, measure.most))
    words = f"{least} to {most}" if math.isfinite(measure.least) and math.isfinite(measure.most) else ""
    words = words or (f"at least {least}" if math.isfinite(measure.least) else f"at most {most}")
    return f"{words} {measure.unit}".strip()


def test_every_measure_stands_in_the_table_with_its_range():
    for criterion in load_criteria().criteria:
        assert f"| {criterion.title} | " in PAGE
        for known in criterion.measures:
            assert f"| {known.title} | {limits(known)} |" in PAGE


def test_the_limits_of_likeness_and_the_crops_are_named():
    limits = load_criteria().duplicates
    assert f"at most {limits['picture']:g} of 64 bits" in PAGE
    assert f"\n{limits['person']}, are flagged" in PAGE
    assert all(f"`{name}`" in PAGE or f"`--crop {name}`" in PAGE for name in METHODS)
