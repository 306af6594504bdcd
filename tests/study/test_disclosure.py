"""Raters are blind, unless the study is drawn as the paper's was."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.core.errors import StillmeError
from stillme.runs import Run
from stillme.study.drawing import StudyDesign, new_study

BLIND = StudyDesign(items=4, per_task=4, compare="none", side=64)
TOLD = StudyDesign(items=4, per_task=4, compare="none", side=64, disclosure="paper")


def labelled(tmp_path: Path, portraits: Path, *, age: str = "20s") -> Path:
    """A run of portraits with race, gender and age."""
    table = portraits / "portraits.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=[*rows[0], "race", "gender", "age"])
        writer.writeheader()
        writer.writerows(row | {"race": "Indian", "gender": "Female", "age": age} for row in rows)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "audit.toml").write_text(
        f'[portraits]\nsource = "{portraits}"\n[prompts]\nonly = ["O-01"]\n[[editors]]\nuse = "noop"\n'
        '[[judges]]\nuse = "scripted"\n[estimates]\nfactors = ["group"]\n'
    )
    run_stages(folder, ("edit",))
    return folder


def test_only_told_raters_read_the_labels(tmp_path: Path, portraits: Path):
    with Run.open(labelled(tmp_path, portraits)) as run:
        blind = new_study(run, tmp_path / "blind", BLIND, lambda _: None).drawn
        told = new_study(run, tmp_path / "told", TOLD, lambda _: None).drawn
    real = [item for item in told.items if item.kind == "real"]
    assert all(item.prompt.endswith("(Original: race Indian, gender Female, age 20s.)") for item in real)
    assert told.design["disclosure"] == "paper"
    assert not any("Indian" in item.prompt for item in blind.items)


def test_labels_that_are_missing_are_named_before_anything_is_written(tmp_path: Path, portraits: Path):
    with (
        Run.open(labelled(tmp_path, portraits, age="")) as run,
        pytest.raises(StillmeError, match=r"lack age\. Leave it out"),
    ):
        new_study(run, tmp_path / "told", TOLD, lambda _: None)
    assert not (tmp_path / "told").exists()
