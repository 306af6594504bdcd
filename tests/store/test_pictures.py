from __future__ import annotations

import errno
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.runs.store.pictures import Pictures


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_pictures_are_found_by_their_hash(tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]):
    pictures = Pictures(tmp_path_factory.mktemp("images"))
    for content in contents:
        sha256 = pictures.add(content)
        found = pictures.find(sha256)
        assert sha256 == hashlib.sha256(content).hexdigest()
        assert found.read_bytes() == content
    assert len(list(pictures.names())) == len(set(contents))


@pytest.mark.parametrize(
    ("data", "suffix"),
    [(b"\x89PNG\r\n", ".png"), (b"RIFF....WEBP", ".webp"), (b"\xff\xd8\xff", ".jpg"), (b"who knows", ".bin")],
)
def test_files_carry_the_suffix_of_their_format(tmp_path: Path, data: bytes, suffix: str):
    pictures = Pictures(tmp_path)
    found = pictures.find(pictures.add(data))
    assert found.suffix == suffix


def test_a_failed_write_names_its_file_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}"):
        Pictures(tmp_path).add(b"a picture")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_many_threads_may_add_the_same_picture(tmp_path: Path):
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(Pictures(tmp_path).add, [b"same"] * 16))
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
