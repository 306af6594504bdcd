"""What the tables of about ten small runs said when they were photographed, they still say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.files import NUMBERS, WORDS, differences, take

_LISTED = 15
_RENEW = {
    NUMBERS: "Numbers are frozen. If this change is meant, renew with `python -m tests.golden`, and say in the commit "
    "which numbers changed and why.",
    WORDS: "If this change is meant, renew with `python -m tests.golden`, and give the reason in the commit.",
}


@pytest.fixture(scope="module")
def taken() -> dict[Path, Any]:
    return json.loads(json.dumps({str(file): document for file, document in take().items()}))


@pytest.mark.xdist_group("golden")
@pytest.mark.parametrize("file", [NUMBERS, WORDS], ids=lambda file: file.stem)
def test_the_tables_say_what_they_said(taken: dict[str, Any], file: Path) -> None:
    changed = list(differences(json.loads(file.read_text("utf-8")), taken[str(file)]))
    listed = "\n".join(changed[:_LISTED])
    assert not changed, f"{file.name} differs in {len(changed):,} places:\n{listed}\n{_RENEW[file]}"


def test_a_difference_is_found_and_named() -> None:
    before = {"run": {"table": {"columns": ["value"], "rows": {"all": [0.25, 3], "a": [1, 2]}}}}
    after = {"run": {"table": {"columns": ["value"], "rows": {"all": [0.250001, 4], "b": [1, 2]}}}}
    assert list(differences(before, after)) == [
        "run → table → rows → all [1]: was 3, is 4",
        "run → table → rows → a: is gone",
        "run → table → rows → b: is new",
    ]
