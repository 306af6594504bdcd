"""Archives that stillme did not write are refused before anything of them is read."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from stillme.api.python import open as open_run
from stillme.core.errors import StillmeError
from stillme.findings.evidence import bundle as archive
from stillme.findings.evidence import opened_bundle, verify


def zipped(file: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries:
            target.writestr(name, data)
    return file


def members_of(file: Path) -> dict[str, bytes]:
    """What is in a bundle."""
    with zipfile.ZipFile(file) as source:
        return {name: source.read(name) for name in source.namelist()}


def zip_of_kind(kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("report.html")
    entry.create_system, entry.external_attr = 3, (kind | 0o644) << 16
    return entry


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["report.html", "Report.html", "a", "report.html/x"])
def test_a_name_twice_is_refused(tmp_path: Path, second: str):
    # A reader that takes the first and one that takes the last see two reports under one root.
    first = "a" if second == "a" else "report.html"
    file = zipped(tmp_path / "x", (first, b"forged"), (second, b"real"))
    with pytest.raises(archive.Unsafe, match=r"twice|another has its folder"):
        archive.unpack(file, tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/etc/evil.txt", "a/../../b", "./a", "a//b", "a\\b", "C:a", "a\nb", "rows/.hidden", "a."]
)
def test_a_name_that_stillme_never_writes_is_refused(tmp_path: Path, name: str):
    with pytest.raises(archive.Unsafe, match="outside of what stillme writes"):
        archive.unpack(zipped(tmp_path / "x", (name, b"")), tmp_path / "out")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "x"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_special_files_in_a_zip_are_refused(tmp_path: Path, kind: int):
    with pytest.raises(archive.Unsafe, match="not a plain file"):
        archive.unpack(zipped(tmp_path / "x", (zip_of_kind(kind), b"README.md")), tmp_path / "out")


def test_a_bomb_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = zipped(tmp_path / "x.zip", *((f"rows/{place}.jsonl", bytes(2**20)) for place in range(40)))
    monkeypatch.setattr(archive, "ALWAYS_ALLOWED", 3 * 2**20)
    with pytest.raises(archive.Unsafe, match=r"unpacks to more than .* bytes \(at most 100 times its size"):
        archive.unpack(file, tmp_path / "out")
    written = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert written <= max(3 * 2**20, 100 * file.stat().st_size)


def test_too_large_and_too_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = zipped(tmp_path / "x.zip", *((f"rows/{place}.jsonl", bytes(1000)) for place in range(10)))
    monkeypatch.setattr(archive, "MAX_BYTES", 9_999)
    with pytest.raises(archive.Unsafe, match="unpacks to more than"):
        archive.unpack(file, tmp_path / "bytes")
    monkeypatch.undo()
    monkeypatch.setattr(archive, "MAX_ENTRIES", 9)
    with pytest.raises(archive.Unsafe, match="more than 9 files"):
        archive.unpack(file, tmp_path / "entries")


def test_nothing_is_packed_that_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rows").write_bytes(bytes(2**20))
    monkeypatch.setattr(archive, "ALWAYS_ALLOWED", 1000)
    archive.pack(tmp_path / "x.zip", {"rows": tmp_path / "rows"})
    assert (tmp_path / "x.zip").stat().st_size > 2**20, "what compresses too well is stored as it is"
    assert archive.unpack(tmp_path / "x.zip", tmp_path / "out") == ["rows"]
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    with pytest.raises(StillmeError, match="Leave out --with-images"):
        archive.pack(tmp_path / "x.zip", {"rows": tmp_path / "rows"})


def test_an_archive_in_front_of_another_is_refused(tmp_path: Path):
    # Two readers would unpack two bundles from one file.
    both = tmp_path / "both.zip"
    first, second = (zipped(tmp_path / name, (name, b"hello")).read_bytes() for name in ("a", "b"))
    both.write_bytes(first + second)
    with pytest.raises(StillmeError, match="none of its files"):
        archive.unpack(both, tmp_path / "out")


@pytest.mark.parametrize("place", ["between", "behind", "comment"])
def test_a_zip_with_bytes_that_belong_to_no_file_is_refused(tmp_path: Path, place: str):
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("a.txt", b"a")
        if place == "between":
            hidden = zipped(tmp_path / "hidden", ("c.txt", b"hello")).read_bytes()
            target.fp.write(hidden)  # type: ignore[union-attr]
            target.start_dir += len(hidden)
        target.writestr("b.txt", b"b")
        if place == "comment":
            target.comment = b"PK"
    if place == "behind":
        file.write_bytes(file.read_bytes() + bytes(200))
    with pytest.raises(StillmeError, match=r"none of its files|not a complete"):
        archive.unpack(file, tmp_path / "out")


def test_every_way_to_open_a_bundle_refuses(tmp_path: Path):
    file = zipped(tmp_path / "x.zip", ("/evil.txt", b""))
    with pytest.raises(archive.Unsafe):
        verify(file)
    with pytest.raises(archive.Unsafe), opened_bundle(file):
        pass
    with pytest.raises(archive.Unsafe):
        open_run(file)
