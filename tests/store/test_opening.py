"""A ledger that is damaged or closed to us is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillme.core.errors import StillmeError
from stillme.runs.store import Store


@pytest.mark.parametrize("way", [Store.reading, Store.writing])
def test_a_file_that_is_no_ledger_is_named(tmp_path: Path, way: object):
    (tmp_path / "stillme.sqlite").write_bytes(b"not a database, but long enough to look at" * 40)
    with pytest.raises(StillmeError, match=r"stillme\.sqlite is damaged"), way(tmp_path):
        pass


def test_a_folder_without_a_ledger_is_named(tmp_path: Path):
    with pytest.raises(StillmeError, match="has no run yet"), Store.reading(tmp_path):
        pass
