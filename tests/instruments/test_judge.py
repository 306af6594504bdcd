from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from PIL import Image

from stillme.core.protocols import Judge
from stillme.core.rubric import load as load_rubric
from stillme.core.types import Abstained, Assessment, ImageFile, Pair, Prompt, Rated
from stillme.instruments import judge as judging
from stillme.instruments import measurements
from stillme.instruments.cards import DESCRIBED, QUANTITIES, SCALES, SKIN
from stillme.instruments.judge import InstrumentParameters, Instruments
from stillme.instruments.thresholds import load_thresholds, step
from tests.instruments.known_changes import clothes_tinted, lighter, one, some

PROMPT = Prompt(id="p", text="Put on a red shirt.", category="c", subcategory="s")
AGING = Prompt(id="V-05", text="Make this person 20 years older.", category="c", subcategory="aging", years=20)


def saved(folder: Path, rgb: np.ndarray, name: str) -> ImageFile:
    path = folder / f"{name}.png"
    Image.fromarray(rgb).save(path)
    return ImageFile.of(path)


def assess(judge: Instruments, source: ImageFile, edited: ImageFile, prompt: Prompt = PROMPT) -> Assessment:
    return next(iter(judge.judge([Pair(edit="key", sources=(source,), edited=edited, prompt=prompt)])))


@pytest.fixture
def source(tmp_path: Path) -> ImageFile:
    return saved(tmp_path, one(), "source")


def test_it_is_a_judge_whose_axes_the_rubric_knows() -> None:
    judge = Instruments()
    assert isinstance(judge, Judge)
    assert judge.capabilities.kind == "instrument"
    assert {*judge.capabilities.axes, *judge.capabilities.partial} <= load_rubric().axes.keys()


def test_the_same_picture_is_rated_unchanged(source: ImageFile) -> None:
    ratings = assess(Instruments(), source, source, AGING).ratings
    # Twenty years were asked for.
    unchanged = dict.fromkeys(("gender_change", "edit_success", "visible_change", "age_accuracy"), 1)
    unchanged |= {"skin_tone": 3, "age_change": 3}
    for axis, score in (dict.fromkeys(QUANTITIES, 0) | unchanged).items():
        rating = ratings[axis]
        if axis == "skin_delta_ita" and isinstance(rating, Abstained):
            continue
        assert rating.score == score


def test_lighter_skin_is_rated_lighter(tmp_path: Path, source: ImageFile) -> None:
    for shift, score in ((-10, 1), (-5, 2), (5, 4), (10, 5)):
        rating = assess(Instruments(), source, saved(tmp_path, lighter(one(), shift), "edited")).ratings["skin_tone"]
        assert rating.score == score


def test_what_an_edit_shows_is_left_to_others(tmp_path: Path, source: ImageFile) -> None:
    edited = saved(tmp_path, clothes_tinted(one(), (200, 30, 30)), "edited")
    assert "edit_success" not in assess(Instruments(), source, edited).ratings


@pytest.mark.parametrize("shown", ["nobody", "two people", "someone far away"])
def test_without_one_good_face_there_is_no_number(tmp_path: Path, source: ImageFile, shown: str) -> None:
    rgb = one()
    small = rgb[:: rgb.shape[0] // 96, :: rgb.shape[1] // 96]
    edited, reason = {
        "nobody": (np.zeros_like(rgb), "no face found"),
        "two people": (np.hstack([rgb, rgb]), "several faces"),
        "someone far away": (small, "face too small"),
    }[shown]
    ratings = assess(Instruments(), source, saved(tmp_path, np.ascontiguousarray(edited), "edited"), AGING).ratings
    for axis in (*SKIN, *DESCRIBED, *SCALES, "age_accuracy"):
        rating = ratings[axis]
        assert reason in rating.reason
    assert isinstance(ratings["changed_area"], Rated)


def test_a_source_without_a_face_is_named_as_the_reason(tmp_path: Path, source: ImageFile) -> None:
    rating = assess(Instruments(), saved(tmp_path, np.zeros_like(one()), "black"), source).ratings["skin_delta_l"]
    assert rating == Abstained(reason="no face found in the source")


def test_a_broken_file_is_a_failure_that_no_retry_mends(tmp_path: Path, source: ImageFile) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(source.read()[:2000])
    ratings = assess(Instruments(), source, ImageFile.of(path)).ratings
    assert set(ratings) == {*QUANTITIES, *SCALES}
    for rating in ratings.values():
        assert not rating.retryable
        assert "the edited image" in rating.error


def test_two_sources_are_one_too_many(source: ImageFile) -> None:
    pair = Pair(edit="key", sources=(source, source), edited=source, prompt=PROMPT)
    assert all(isinstance(rating, Abstained) for rating in next(iter(Instruments().judge([pair]))).ratings.values())


def test_threads_and_a_small_cache_change_no_number(tmp_path: Path) -> None:
    files = [saved(tmp_path, rgb, f"portrait{index}") for index, rgb in enumerate(some(2))]
    pairs = [Pair(edit="key", sources=(a,), edited=b, prompt=PROMPT) for a in files for b in files]
    alone = [assessment.ratings for assessment in Instruments().judge(pairs)]
    crowded = Instruments(InstrumentParameters(cache=1))
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda pair: next(iter(crowded.judge([pair]))).ratings, pairs))
    assert together == alone
    crowded.close()


def test_the_same_two_pictures_are_measured_once_and_each_prompt_has_its_own_scales(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, edited = (saved(tmp_path, rgb, name) for rgb, name in zip(some(2), ("source", "edited"), strict=True))
    older = replace(PROMPT, id="V-05", years=10)
    pairs = [
        Pair(edit=edit, sources=(source,), edited=edited, prompt=prompt)
        for edit, prompt in (("a", PROMPT), ("b", replace(PROMPT, id="other")), ("c", older))
    ]
    alone = [next(iter(Instruments().judge([pair]))) for pair in pairs]
    measured: list[object] = []
    measure = measurements.measure
    monkeypatch.setattr(measurements, "measure", lambda *a, **k: measured.append(a) or measure(*a, **k))
    assert list(Instruments().judge(pairs)) == alone
    assert len(measured) == 2
    assert "age_accuracy" in alone[2].ratings
    assert "age_accuracy" not in alone[0].ratings


def test_a_picture_that_could_not_be_read_is_read_again(tmp_path: Path, source: ImageFile) -> None:
    path = tmp_path / "late.png"
    edited = ImageFile(path=path, sha256=source.sha256)
    judge = Instruments()
    assert assess(judge, source, edited).failure
    path.write_bytes(source.read())
    assert not assess(judge, source, edited).failure


def test_the_key_covers_the_thresholds_but_not_the_cache() -> None:
    assert Instruments(InstrumentParameters(cache=1)).spec.key == Instruments().spec.key
    assert Instruments().spec.version != "1"


def test_scales_treat_lighter_and_darker_alike() -> None:
    cuts = load_thresholds().skin.scale
    steps = {-8.0: 1, -7.9: 2, -3.0: 2, -2.9: 3, 0: 3, 2.9: 3, 3.0: 4, 7.9: 4, 8.0: 5}
    assert {value: step(value, cuts) for value in steps} == steps


@pytest.mark.parametrize(
    ("before", "after", "scores"),
    [
        # who stays on their side
        (0.9, 1.6, (1, 2)),
        (0.1, -0.7, (1, 2)),
        (0.05, 0.28, (1, 2)),
        (0.95, 0.72, (1, 2)),
        (0.2, 0.49, (1, 2)),
        # who crosses the middle
        (0.1, 0.55, (3,)),
        (0.9, 0.45, (3,)),
        (0.1, 0.8, (4,)),
        (1.0, 0.05, (5,)),
        # a small step across it, and an unclear source, which has no side
        (0.34, 0.52, (1, 2)),
        (0.5, 1.4, None),
        (0.36, 1.4, None),
    ],
)
def test_gender_presentation_changes_with_who_crosses_the_middle(
    before: float, after: float, scores: tuple[int, ...] | None
) -> None:
    reading = {"gender_reading": [before, after], "gender_interval": [after - before - 0.1, after - before + 0.1]}
    measured = cast("measurements.Measurements", SimpleNamespace(details=reading))
    rating = judging.gender_change(measured, after - before)
    assert rating.score in scores if scores else isinstance(rating, Abstained)
