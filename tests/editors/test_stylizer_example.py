"""The example of a neural editor behind the `command` editor: its page is followed as it stands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stillme import audit as audits
from stillme.api.pipeline import run_stages

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "stylizer"


def copy(folder: Path) -> Path:
    """What is in the repository, and nothing that was made there."""
    return Path(
        shutil.copytree(EXAMPLE, folder / "stylizer", ignore=shutil.ignore_patterns("env", "models", "fetched"))
    )


def commands() -> list[str]:
    """The page's commands, between the change into its folder and the run."""
    lines = [line.strip() for line in EXAMPLE.with_suffix(".md").read_text().splitlines() if line.startswith("    ")]
    assert lines[0] == "cd docs/examples/stylizer"
    assert lines[-1] == "stillme run ."
    return lines[1:-1]


def test_the_example_asks_each_style_for_every_portrait_once(tmp_path: Path):
    folder = copy(tmp_path)
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    audit = audits.load(folder)
    assert {named.name: audit.request_count(named) for named in audit.editors} == {
        "color-sketch": 84,
        "color-ink": 84,
        "oil-painting": 84,
    }


@pytest.mark.soak
def test_mediapipes_stylizer_redraws_faces_as_the_readme_says(tmp_path: Path):
    if sys.version_info >= (3, 13):
        pytest.skip("mediapipe 0.10.21 needs Python 3.12 or earlier")
    folder = copy(tmp_path)
    script = "\n".join(commands()).replace("python3.11", sys.executable)
    made = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mediapipe 0.10.21 or its weights cannot be had here: {made.stderr[-300:]}")
    audit = folder / "audit.toml"
    audit.write_text(audit.read_text().replace('source = "synthetic"', 'source = "synthetic"\nlimit = 2'))
    summary = run_stages(folder, ("edit", "judge"))
    assert [tally.counts for tally in summary.tallies] == [{"edited": 2}] * 3 + [{"judged": 6}]
