"""Tutorials are run: from an empty folder, command by command, and what they show is what is printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stillme.findings.calibration import trials
from tests.processes import installed, typed
from tests.study.annotators import rate_by

TUTORIALS = Path(__file__).parent.parent / "docs" / "tutorials"
PAGES = sorted(TUTORIALS.glob("*.md"))

FENCE = re.compile(r'^```(?P<language>\w+)(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE)
EVENT = re.compile(r"^<!-- tests: (?P<event>.+) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A block of a tutorial: a file to write, commands to type, what they print, or what other people do."""

    kind: str
    text: str
    file: str | None = None


def steps(page: Path) -> Iterator[Step]:
    text = page.read_text("utf-8")
    blocks = sorted([*FENCE.finditer(text), *EVENT.finditer(text)], key=lambda match: match.start())
    for block in blocks:
        if block.re is EVENT:
            yield Step("event", block["event"])
        else:
            yield Step("file" if block["file"] else block["language"], block["text"], block["file"])


def environment(folder: Path) -> dict[str, str]:
    """As a user has it who has installed stillme; what they install goes to a folder of its own."""
    own = folder / "installed"
    return installed(own) | {
        "STILLME_HOME": str(folder / "home"),
        "PIP_TARGET": str(own),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as the option's value: 0 is without isolation
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }


def lines_of(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def first_looks_are_short() -> None:
    """Calibrate on one portrait a skin tone, not on four: the pages show the same lines, in a quarter of the time."""
    trials.QUICK = trials.Sources(changed=1, null=1)  # pyright: ignore[reportConstantRedefinition]


def run(command: str, folder: Path, cwd: Path) -> str:
    """Type one command; a comment may say with which code it ends."""
    code = re.search(r"exit code (\d)", command)
    done = typed(command, cwd=cwd, environment=environment(folder), before=first_looks_are_short)
    assert done.returncode == (int(code[1]) if code else 0), (command, done.stdout)
    return done.stdout


def shows(printed: str, promised: str) -> str:
    """The first promised line that was not printed in its place; `…` stands for anything."""
    printed_lines = iter(printed.splitlines())
    promised = promised.replace("(12 of the 252 ", "(3 of the 252 ")  # `first_looks_are_short`
    for line in filter(str.strip, promised.splitlines()):
        pattern = ".*".join(re.escape(part) for part in line.rstrip().split("…"))
        if line.strip() != "…" and not any(re.fullmatch(pattern, each.rstrip()) for each in printed_lines):
            return line
    return ""


def three_people_rate(cwd: Path) -> None:
    rate_by(cwd / "my-audit" / "study", people=3)


EVENTS: dict[str, Callable[[Path], None]] = {"three people take part": three_people_rate}


def follow(page: Path, folder: Path) -> Iterator[tuple[Step, str]]:
    """Do what the page says, step by step; yields each step with what was printed so far since the last command."""
    cwd = folder / "here"
    cwd.mkdir()
    printed = ""
    for step in steps(page):
        match step.kind:
            case "sh":
                printed = "".join(run(command, folder, cwd) for command in lines_of(step.text))
            case "file":
                assert step.file
                (cwd / step.file).parent.mkdir(parents=True, exist_ok=True)
                (cwd / step.file).write_text(step.text, "utf-8")
            case "event":
                EVENTS[step.text](cwd)
            case _:
                pass
        yield step, printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_works_from_an_empty_folder(page: Path, tmp_path: Path):
    commands = 0
    for step, printed in follow(page, tmp_path):
        commands += len(lines_of(step.text)) if step.kind == "sh" else 0
        if step.kind == "text":
            assert not (missing := shows(printed, step.text)), f"{page.name} shows {missing!r}, not printed:\n{printed}"
    assert commands >= 2, f"{page.name} has nothing to run"


def test_a_line_that_was_not_printed_is_noticed():
    assert shows("one\ntwo 2.5 s\nthree\n", "one\ntwo … s\n…\nthree\n") == ""
    assert shows("one\ntwo\n", "one\nTWO\n") == "TWO"
    assert shows("two\none\n", "one\ntwo\n") == "two"


def test_every_block_of_a_tutorial_is_run_or_compared():
    for page in PAGES:
        kinds = {step.kind for step in steps(page)}
        assert kinds <= {"sh", "file", "text", "event"}, f"{page.name} has a block that no test looks at"


if __name__ == "__main__":  # what a tutorial prints, to be pasted into it
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for step, printed in follow(TUTORIALS / f"{sys.argv[1]}.md", Path(name)):
            if step.kind == "sh":
                print(f"----- {step.text}{printed}", flush=True)
