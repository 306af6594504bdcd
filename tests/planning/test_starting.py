"""`stillme new` for other portraits, for an earlier run, and as the paper did it."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from stillme import audit
from stillme.api.pipeline import run_stages
from stillme.audit.grid import CellNames, draw_among, read_cells
from stillme.core import registry
from stillme.core.errors import StillmeError
from stillme.portraits import portraits as embedded
from tests.command_lines import invoke as stillme
from tests.command_lines import ran
from tests.runs import rated_elsewhere


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--as", "paper"], "--as paper goes with --experiment"),
        (["--experiment", "roles", "--from", "."], "--from goes with --experiment mitigation"),
        (["--experiment", "mitigation", "--cases", "drifted"], "name that run with --from RUN"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence_and_write_nothing(
    tmp_path: Path, arguments: list[str], sentence: str
):
    shown = stillme("new", tmp_path / "x", *arguments)
    assert isinstance(shown.exception, StillmeError)
    assert sentence in str(shown.exception)
    assert not (tmp_path / "x").exists()


NAMED = [
    *(("editor", name) for name in registry.plugins("editor") if registry.is_own("editor", name) and name != "comfyui"),
    *(("judge", name) for name in registry.plugins("judge") if registry.is_own("judge", name)),
]
"""ComfyUI needs a file of the user's."""


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_a_new_audit_with_any_editor_or_judge_is_commented_and_loads(tmp_path: Path, kind: str, name: str):
    ran("new", tmp_path, f"--{kind}", name)
    loaded = audit.load(tmp_path, ready=False)
    named = loaded.editors if kind == "editor" else loaded.judges
    assert [each.name for each in named] == [{"python": "edit" if kind == "editor" else "rate"}.get(name, name)]
    assert (tmp_path / "audit.toml").read_text().count("#") > 15


def test_editors_and_judges_are_written_as_often_as_they_are_named(tmp_path: Path):
    words = ("--editor", "folder", "--editor", "folder", "--judge", "openai-compatible", "--judge", "instruments")
    ran("new", tmp_path, *words)
    loaded = audit.load(tmp_path, ready=False)
    assert [named.name for named in loaded.editors] == ["folder", "folder-2"]
    assert [named.name for named in loaded.judges] == ["openai-compatible", "instruments"]


def test_a_function_of_ones_own_runs_from_the_file_that_is_written_or_named(tmp_path: Path):
    ran("new", tmp_path / "a", "--editor", "python", "--judge", "python")
    assert audit.load(tmp_path / "a").editors[0].editor.spec.use == "python"
    ran("new", tmp_path / "b", "--editor", f"python:{tmp_path}/a/edit.py:edit")
    assert 'use = "python:../a/edit.py:edit"' in (tmp_path / "b" / "audit.toml").read_text()
    audit.load(tmp_path / "b")


def test_as_paper_says_that_the_embedded_portraits_lack_what_judges_are_told(tmp_path: Path):
    shown = ran("new", tmp_path / "x", "--experiment", "diagnosis", "--as", "paper")
    assert "lack race, gender, age" in shown.output
    planned = json.loads(stillme("plan", tmp_path / "x", "--json").stdout)
    assert any('disclosure = "paper" needs race, gender and age' in line for line in planned["would_be_refused"])


def test_the_papers_sample_is_drawn_from_what_changed_in_the_first_experiment(tmp_path: Path, portraits: Path):
    first = _judged_run(tmp_path / "one", portraits)
    shown = ran("new", tmp_path / "two", "--experiment", "mitigation", "--cases", "drifted", "--from", first)
    # The template has the paper's editors, and the first experiment another one.
    assert "are not all in it: noop. Copy their [[editors]]" in shown.output
    cells = read_cells(tmp_path / "two" / "cells.csv")
    # p0 and p1 changed race under both prompts, p2 gender under one; p3 to p5 stayed.
    assert sorted(cells) == sorted(
        ("noop", *cell) for cell in (("p0", "O-01"), ("p0", "O-02"), ("p1", "O-01"), ("p1", "O-02"), ("p2", "O-02"))
    )
    data = tomllib.loads((tmp_path / "two" / "audit.toml").read_text())
    assert data["reuse"] == {"runs": ["../one"]}
    assert (tmp_path / "two" / data["portraits"]["source"]).resolve() == portraits


def test_without_scores_nothing_can_be_drawn_by_outcome(tmp_path: Path, portraits: Path):
    first = _run(tmp_path / "one", portraits)
    shown = stillme("new", tmp_path / "two", "--experiment", "mitigation", "--cases", "drifted", "--from", first)
    assert "no baseline edit with a race or gender change of 2 or more" in str(shown.exception)
    assert not (tmp_path / "two").exists()


def test_a_draw_among_cells_is_even_over_prompts_and_editors_and_by_seed_alone():
    cells: list[CellNames] = [
        (editor, portrait.id, prompt)
        for editor in ("a", "b", "c")
        for portrait in embedded()
        for prompt in ("p", "q", "r", "s")
    ]
    drawn = draw_among(cells, embedded(), factors=("preset",), size=120, seed=1)
    assert len(set(drawn)) == 120
    assert set(Counter(prompt for _, _, prompt in drawn).values()) == {30}
    assert set(Counter(editor for editor, _, _ in drawn).values()) == {40}
    assert drawn == draw_among(reversed(cells), embedded(), factors=("preset",), size=120, seed=1)
    assert drawn != draw_among(cells, embedded(), factors=("preset",), size=120, seed=2)
    presets = Counter(portrait.split("_")[0] for _, portrait, _ in drawn)
    assert max(presets.values()) - min(presets.values()) <= 8
    assert sorted(draw_among(cells, embedded(), factors=(), size=10_000, seed=1)) == sorted(cells)


def _run(folder: Path, portraits: Path) -> Path:
    folder.mkdir()
    (folder / "audit.toml").write_text(
        f'[portraits]\nsource = "../{portraits.name}"\n[prompts]\nonly = ["O-01", "O-02"]\n'
        '[[editors]]\nuse = "noop"\n[[judges]]\nuse = "scripted"\n[estimates]\nfactors = ["group"]\n'
    )
    run_stages(folder, ("edit",))
    assert len(audit.load(folder).portraits) == 6
    return folder


def _judged_run(folder: Path, portraits: Path) -> Path:
    _run(folder, portraits)
    rows = [
        f"p{index},{prompt},{3 if index < 2 else 1},{2 if (index, prompt) == (2, 'O-02') else 1}"
        for index in range(6)
        for prompt in ("O-01", "O-02")
    ]
    rated_elsewhere(folder, "portrait,prompt,race_change,gender_change", rows)
    return folder
