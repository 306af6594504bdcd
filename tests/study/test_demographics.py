"""Prolific's demographic export becomes counts of this study's raters, and nothing else of it is kept."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.core.errors import StillmeError
from stillme.runs import participants
from stillme.study.submissions import describe
from tests.study.conftest import Served


def export(path: Path, names: list[str]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Submission id", "Participant id", "Status", "Age", "Sex", "Ethnicity simplified"])
        for place, name in enumerate(names):
            writer.writerow(
                [f"s{name}", name, "APPROVED", 30 + place, "Female", ["White", "CONSENT_REVOKED"][place % 2]]
            )
    return path


def test_only_raters_who_finished_are_counted_and_nobody_is_named(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve(tasks=3, per_task=1, raters=2, checks=False)
    names = [f"pid{number}" for number in range(6)]
    for name in names:
        served.browser().take_part(name)
    served.browser().enter("pid9")
    described = describe(served.study, export(tmp_path / "export.csv", [*names, "pid9", "stranger"]), tmp_path)
    assert (described.count, described.age_mean) == (6, 32.5)
    assert described.attributes["Sex"] == {"Female": 6}
    assert described.attributes["Ethnicity simplified"] == {participants.RARE: 3, participants.MISSING: 3}
    kept = (tmp_path / participants.FILE).read_text()
    assert not any(name in kept for name in names)


@pytest.mark.parametrize("text", ["", "Participant id\np1\n", "Age\n3\n"])
def test_another_file_is_one_sentence(serve: Callable[..., Served], tmp_path: Path, text: str) -> None:
    (tmp_path / "export.csv").write_text(text)
    with pytest.raises(StillmeError, match="Name a demographic export from Prolific"):
        describe(serve().study, tmp_path / "export.csv", tmp_path)
