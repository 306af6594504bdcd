"""The offline extractor says who describes what it cannot."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from PIL import Image

from stillme.cli import cli


def test_where_the_offline_extractor_declines_the_other_ones_are_named(tmp_path: Path):
    Image.new("RGB", (128, 128), (90, 90, 90)).save(tmp_path / "nobody.png")
    shown = CliRunner().invoke(cli, ["mitigate", "--dry-run", str(tmp_path / "nobody.png")])
    assert shown.exit_code == 1
    assert "measured declined: no face found" in shown.output
    assert "add --extractor gemini-3-flash" in shown.output
    assert "add --extractor" not in CliRunner().invoke(cli, ["mitigate", "--dry-run", "A_f_23"]).output
