"""Texts and questions may change while a study runs; a preview leaves nothing behind."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from stillme.study.app import preview
from stillme.study.entry import invite
from stillme.study.export import export_study
from stillme.study.opening import open_study
from stillme.study.progress import overview_of
from tests.command_lines import invoke, ran
from tests.processes import Started
from tests.records import rows_in
from tests.study.annotators import free_port
from tests.study.conftest import Browser, Served, serving_again
from tests.study.studies import change, write_study


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path / "study", tasks=1, per_task=2, raters=3, checks=False)
    return tmp_path / "study"


def test_a_new_wording_is_for_those_who_have_not_begun_and_deletes_nothing(folder: Path, tmp_path: Path) -> None:
    with serving_again(folder) as before:
        (code,) = invite(before.study, 1)
        begun = before.browser().enter("begun").to_rating()
        reading = before.browser().enter("reading")
        old_token = reading.csrf()
        cookies = {name: dict(who.client.cookies) for name, who in (("begun", begun), ("reading", reading))}
    change(folder, '"edit_success", "skin_tone", ', '"skin_tone", ')
    change(folder, "## What this study is about", "## A new heading")
    with serving_again(folder) as after:
        assert after.study.version == 2

        def back(name: str) -> Browser:
            browser = after.browser()
            browser.client.cookies.update(cookies[name])
            return browser

        begun, reading = back("begun"), back("reading")
        assert begun.data()[0]["items"][0]["questions"][0] == "edit_success", "what they agreed to stays"
        begun.hand_in()
        # Somebody who had the old text before them reads the new one first.
        stale = {"csrf": old_token, "decision": "agree", "version": "1"}
        assert reading.ask("POST", "/study/consent", data=stale).status_code == 303
        assert "A new heading" in reading.page()
        assert reading.agree().page().count("Is your screen ready?") == 1
        invited = after.browser()
        assert invited.ask("GET", f"/i/{code}").status_code == 303
        invited.to_rating([[[3, 1, 1, 3]] * 2] * 2)
        assert invited.data()[0]["items"][0]["questions"][0] == "skin_tone"
        invited.hand_in(invited.answers(lambda i, s, q: 4))
        export_study(after.study, tmp_path / "out", "csv")
    rows = rows_in(tmp_path / "out" / "ratings.csv")
    asked = {version: {row["axis"] for row in rows if row["version"] == version} for version in "12"}
    assert asked["1"] - asked["2"] == {"edit_success"}
    # Whatever the version, an answer is filed under the question that was asked.
    assert {row["score"] for row in rows if row["version"] == "1"} == {"3"}
    assert {row["score"] for row in rows if row["version"] == "2"} == {"4"}
    codebook = (tmp_path / "out" / "codebook.md").read_text()
    assert "## Version 1" in codebook
    assert "A new heading" in codebook.split("## Version 2")[1]


def test_status_and_export_work_whatever_study_toml_says(folder: Path, tmp_path: Path) -> None:
    with serving_again(folder) as first:
        first.browser().take_part("one")
    for old, new in (("## What", "## Whatever"), ("raters = 3", "raters = nonsense")):
        change(folder, old, new)
        for words in (["status"], ["export", "--to", str(tmp_path / "out")]):
            ran("study", words[0], folder, *words[1:])
    assert "is not TOML" in str(invoke("study", "serve", folder).exception)
    with open_study(folder) as study:
        assert (study.version, overview_of(study).progress.counting) == (1, 1), "looking makes no version"


def test_a_preview_shows_everything_and_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(folder, 'contact = "ask@study.example"', 'contact = ""')
    before = sorted(path.name for path in folder.iterdir())
    said: list[str] = []
    seen: list[str] = []

    def walk(server: object, app: object, **_: object) -> None:
        """Instead of serving until Ctrl+C, a person who takes part and leaves."""
        browser = Served(app.state.context.study, app, "").browser()  # type: ignore[attr-defined]
        server.listening.close()  # type: ignore[attr-defined]
        (link,) = re.findall(r"http://\S+(/i/\S+)", " ".join(said))
        browser.ask("GET", link)
        seen.append(browser.page())
        browser.to_rating()
        browser.hand_in()
        seen.append(browser.page())

    monkeypatch.setattr("stillme.web.serving.WebServer.run", walk)
    preview(folder, said.append)
    assert all("Preview: nothing is kept" in page for page in seen)
    assert any("Before participants come" in line and "contact" in line for line in said)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_preview_command_serves_until_interrupted(folder: Path, tmp_path: Path) -> None:
    port, scratch = free_port(), tmp_path / "scratch"
    scratch.mkdir()
    running = Started("study", "preview", folder, "--port", port, environment={"TMPDIR": str(scratch)})
    running.wait_until(lambda: f"Preview at http://127.0.0.1:{port}/i/" in running.said())
    with urlopen(f"http://127.0.0.1:{port}/") as answer:
        assert answer.status == 200
    assert list(scratch.glob("stillme-preview-*"))
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    assert not list(scratch.glob("stillme-preview-*"))
    assert not (folder / "study.sqlite").exists()
