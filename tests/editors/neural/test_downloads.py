"""Weights arrive whole and checked, or not at all."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stillme.editors.neural.downloads import Archive, NotFetched, cache_folder, fetch

WEIGHTS = bytes(range(256)) * 4096


def packed() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=0) as archive:
        entry = tarfile.TarInfo("package/weights.bin")
        entry.size = len(WEIGHTS)
        archive.addfile(entry, io.BytesIO(WEIGHTS))
    return buffer.getvalue()


class Registry(ThreadingHTTPServer):
    """Serves one file on loopback, by ranges; `cut` ends the first answer after so many bytes."""

    def __init__(self, data: bytes, *, cut: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data, self.cut = data, cut
        self.ranges: list[str] = []

    @property
    def archive(self) -> Archive:
        return Archive(
            url=f"http://127.0.0.1:{self.server_port}/weights-1.0.tar.gz",
            sha256=hashlib.sha256(self.data).hexdigest(),
            megabytes=1,
            members={"package/weights.bin": hashlib.sha256(WEIGHTS).hexdigest()},
        )


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        body = self.server.data[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, self.server.cut = self.server.cut, 0
        self.wfile.write(body[:cut] if cut else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLME_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry(packed()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_weights_are_fetched_once_and_only_they_are_kept(registry: Registry, tmp_path: Path) -> None:
    said: list[str] = []
    folder = fetch(registry.archive, said.append)
    assert fetch(registry.archive) == folder
    assert (folder / "weights.bin").read_bytes() == WEIGHTS
    assert not (folder / "weights-1.0.tar.gz").exists()
    assert folder.is_relative_to(tmp_path / "cache")
    assert registry.ranges == [""]
    assert "1 MB" in said[0]


def test_a_download_that_was_cut_off_goes_on_where_it_stopped(registry: Registry) -> None:
    registry.cut = 200_000
    with pytest.raises(NotFetched, match="run the same command again"):
        fetch(registry.archive)
    assert (fetch(registry.archive) / "weights.bin").read_bytes() == WEIGHTS
    assert registry.ranges == ["", "bytes=200000-"]


def test_another_file_under_the_same_address_is_never_used(registry: Registry) -> None:
    known = registry.archive
    registry.data = packed() + b"more"
    with pytest.raises(NotFetched, match="not the file that stillme knows"):
        fetch(known)
    assert not known.is_here()
    assert not list(known.folder.glob("weights*"))


def test_without_network_one_sentence_says_what_to_do() -> None:
    with Registry(packed()) as closed:
        archive = closed.archive
    with pytest.raises(NotFetched) as raised:
        fetch(archive)
    assert "connect to the network" in str(raised.value)
    assert str(archive.folder) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_archive_that_was_put_there_by_hand_needs_no_network() -> None:
    with Registry(packed()) as closed:
        archive = closed.archive
    archive.folder.mkdir(parents=True)
    (archive.folder / archive.file).write_bytes(packed())
    assert (fetch(archive) / "weights.bin").read_bytes() == WEIGHTS


def test_a_damaged_file_in_the_cache_is_fetched_again(registry: Registry) -> None:
    damaged = fetch(registry.archive) / "weights.bin"
    damaged.write_bytes(WEIGHTS[:-1])
    assert (fetch(registry.archive) / "weights.bin").read_bytes() == WEIGHTS


def test_the_platforms_cache_is_used_unless_another_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STILLME_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder() == tmp_path / "stillme"
