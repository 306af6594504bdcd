"""A model card's section says the numbers with their intervals, and what they cannot tell."""

from __future__ import annotations

from pathlib import Path

from stillme.report.model_card import model_cards
from stillme.runs import RecordedRun
from tests.runs import fill, group, people, scores, write_audit


def run(folder: Path, *editors: str) -> RecordedRun:
    audit = write_audit(folder / "run", people(folder / "people"), editors=editors)
    return RecordedRun.open(
        fill(audit, lambda editor, asked: scores(skin=5 if editor == editors[0] and group(asked) == "b" else 3))
    )


def test_each_editor_has_its_own_numbers(tmp_path: Path):
    bad, good = (path.read_text() for path in model_cards(run(tmp_path, "a|b <i>", "fine"), tmp_path / "out"))
    assert "| Skin lightened | 50.0 % |" in bad
    assert "| Skin lightened | 0.0 % |" in good
    assert "larger than matters: b worst" in bad
    assert "b worst" not in good
    assert "judge (not calibrated)" in bad
    assert "a\\|b &lt;i>" in bad, "a name cannot break the table"
    for text in (bad, good):
        assert "What these numbers cannot tell" in text
        assert "Groups are labels, not people." in text


def test_one_editor_has_a_verdict(tmp_path: Path):
    (card,) = model_cards(run(tmp_path, "one"), tmp_path / "out")
    assert "**Did people stay the same, for everyone?** No." in card.read_text()


def test_a_run_without_numbers_says_so(tmp_path: Path):
    audit = write_audit(tmp_path / "run", people(tmp_path / "people", per_group=2))
    (card,) = model_cards(RecordedRun.open(fill(audit, lambda *_: None)), tmp_path / "out")
    assert "No number" in card.read_text()
    assert "Cannot tell." in card.read_text()


def test_names_that_look_alike_get_files_of_their_own(tmp_path: Path):
    made = model_cards(run(tmp_path, "a b", "a-b"), tmp_path / "out")
    assert len({path.name for path in made}) == 2
