"""The first ten commands of four people, each in a fresh folder: every output names the next step."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from stillme.core.errors import StillmeError
from stillme.portraits import portraits
from tests.command_lines import invoke, parse

Type = Callable[..., str]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type a command; it must name the next one, which is pasted as it stands into a parser of the real options."""
    monkeypatch.chdir(tmp_path)

    def enter(*words: str, exits: int = 0, opens: bool = False) -> str:
        shown = invoke(*words)
        if isinstance(shown.exception, StillmeError):
            assert shown.exception.exit_code == exits, shown.exception
            return str(shown.exception)
        assert shown.exit_code == exits, (words, shown.output, shown.exception)
        steps = [line.removeprefix("Next: ") for line in shown.stderr.splitlines() if line.startswith("Next: ")]
        assert steps or (opens and "Open in a browser: " in shown.stderr), f"{words} leads nowhere:\n{shown.output}"
        for step in steps:
            parse(step)
        return shown.output

    return enter


def few(folder: str, count: int = 4) -> None:
    """As the comment in audit.toml offers: only the first portraits."""
    file = Path(folder) / "audit.toml"
    file.write_text(file.read_text().replace("# limit = 10", f"limit = {count}"))


def test_a_researcher_with_a_function(typed: Type):
    typed("new", "my audit", "--editor", "python", "--judge", "python")
    few("my audit")
    assert "8 edits" in typed("plan", "my audit")
    typed("run", "my audit", "--limit", "2")
    typed("run", "my audit")
    assert "8 of 8" in typed("status", "my audit")
    typed("tables", "my audit", "4")
    typed("tables", "my audit", "contrasts")
    typed("report", "my audit")
    typed("export", "my audit")
    typed("doctor", "my audit")


def test_someone_with_outputs_on_disk(typed: Type):
    typed("list", "editors")
    typed("new", "mine", "--editor", "folder", "--judge", "python")
    few("mine")
    (Path("mine") / "edits").mkdir()
    assert "Would be refused" in typed("plan", "mine", "--requests", "requests.csv")
    assert "add the files" in typed("run", "mine", exits=2)
    with Path("requests.csv").open() as rows:
        for row in csv.DictReader(rows):
            file = Path("mine/edits") / row["file"]
            file.parent.mkdir(exist_ok=True)
            Image.open(row["source"]).convert("RGB").save(file)
    assert "Would be refused" not in typed("plan", "mine")
    typed("run", "mine")
    typed("status", "mine")
    Path("scores.csv").write_text("face,prompt,edit_success\na,p,3\n")
    assert "portrait" in typed("import", "rows", "scores.csv", "--into", "rated", exits=2)
    scores = [f"{index},{prompt},{3 + index % 2}" for index in range(4) for prompt in ("O-01", "V-02")]
    Path("scores.csv").write_text("\n".join(["portrait,prompt,edit_success", *scores]))
    typed("import", "rows", "scores.csv", "--into", "rated")
    typed("status", "rated")


def test_a_release_engineer(typed: Type):
    for version in ("v1", "v2"):
        typed("new", version, "--editor", "python", "--judge", "python")
        few(version, 28)
    rate = Path("v1/rate.py")
    rate.write_text(rate.read_text().replace("3}", "4}"))
    shutil.copy(rate, "v2")
    edit = Path("v2/edit.py")
    edit.write_text(edit.read_text().replace("return image", "return image.rotate(180)"))
    for version in ("v1", "v2"):
        typed("run", version)
    typed("compare", "v1", "v2")
    typed("compare", "v1", "v2", "--html", "comparison.html", opens=True)
    typed("gate", "v2", "--rule", "failed <= 5%", exits=4)
    typed("gate", "v2", "--rule", "failed <= 40%")
    assert "Did you mean 'success'" in typed("gate", "v2", "--rule", "succes >= 90%", exits=2)
    typed("gate", "v2", "--baseline", "v1", "--margin", "failed <= 2%", exits=4)
    typed("export", "v2", "--bundle", "evidence.zip")
    typed("verify", "evidence.zip")


def test_a_journalist_with_one_picture(typed: Type):
    source = portraits()[0].image.path
    shutil.copy(source, "before.png")
    Image.open(source).convert("RGB").point(lambda value: min(255, value + 25)).save("after.png")
    sentences = typed("check", "after.png", "--source", "before.png").splitlines()
    assert "skin" in sentences[0]
    typed("check", "after.png", "--source", "before.png", "--html", "check.html", opens=True)
    assert "after.pn" in typed("check", "after.pn", "--source", "before.png", exits=2)
    typed("list", "judges")
    typed("list", "judges", "instruments")
    assert "Did you mean" in typed("check", "after.png", "--source", "before.png", "--judge", "instrument", exits=2)
    typed("mitigate", "A_f_23", "--dry-run")
    typed("list", "editors", "noop")
    typed("mitigate", "A_f_23", "--prompt", "Dress the person as a doctor.", "--editor", "noop")
    typed("list", "portraits")
