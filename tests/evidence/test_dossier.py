"""The dossier maps numbers to duties and claims nothing more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stillme.evidence import seal, write_dossier
from stillme.evidence.dossier import EVIDENCE, duties
from stillme.results import Run
from tests.runs import fill, group, people, scores, write_audit


def dossier(folder: Path, extra: str = "") -> str:
    audit = write_audit(folder / "run", people(folder / "people"), extra=extra)
    filled = Run.open(fill(audit, lambda _, asked: scores(skin=5 if group(asked) == "b" else 3)))
    return write_dossier(seal(filled, folder / "evidence.zip")).read_text()


def row(text: str, place: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {place} |"))


def test_every_duty_names_its_place_and_evidence_that_exists():
    frameworks, asked = duties()
    assert set(frameworks) == {"eu", "nist", "iso"} == {duty.framework for duty in asked}
    shapes = {
        "eu": r"(Article \d+|Annex IV, point \d)",
        "nist": r"(GOVERN|MAP|MEASURE|MANAGE) \d\.\d+$",
        "iso": r"(Clause \d|Control A\.\d)",
    }
    assert len({(duty.framework, duty.place) for duty in asked}) == len(asked)
    for duty in asked:
        assert re.match(shapes[duty.framework], duty.place), duty.place
        assert set(duty.evidence) <= set(EVIDENCE)
        assert duty.missing, "every bundle leaves something open"
    assert {name for duty in asked for name in duty.evidence} == set(EVIDENCE), "no evidence that nobody asks for"


def test_it_says_which_number_and_which_none(tmp_path: Path):
    text = dossier(tmp_path)
    assert "no legal advice" in text
    assert re.search(r"root `[0-9a-f]{64}`", text)
    assert "Skin lightened by group: 100.0 points" in text
    assert "in part: performance, gaps" in row(text, "MEASURE 2.11")
    assert "nothing: it has no calibration" in row(text, "MEASURE 2.13")
    assert "nothing: it has no gate" in row(text, "Article 9(6) and 9(8)")
    assert "not answered" in row(text, "Article 50")
    assert "not calibrated" in text
    assert "Not in this bundle: calibration, people, gate." in text


def test_limits_that_were_recorded_count(tmp_path: Path):
    text = dossier(tmp_path, extra='[gate]\nrules = ["soft_erasure <= 10%"]')
    assert "in part: gate" in row(text, "Article 9(6) and 9(8)")


@pytest.mark.parametrize("word", ["compliant", "complies", "conforms", "certified", "satisfies"])
def test_it_never_claims_conformity(tmp_path: Path, word: str):
    frameworks, asked = duties()
    text = " ".join([*(str(one) for one in frameworks.values()), *(f"{duty.asks} {duty.missing}" for duty in asked)])
    assert word not in text.lower()
