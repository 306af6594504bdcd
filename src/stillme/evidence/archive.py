"""Archives whose bytes depend on their contents alone, and sums that `sha256sum -c` understands."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stillme.errors import StillmeError
from stillme.files import is_inside

SUFFIXES = (".zip", ".tar")

_EPOCH = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20


def pack(file: Path, members: Mapping[str, Path], suffix: str) -> None:
    """Write members in the order of their names, without times, owners or anything else of this machine."""
    if suffix == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
            for name, path in sorted(members.items()):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                entry.create_system = 3
                with path.open("rb") as source, target.open(entry, "w", force_zip64=True) as stream:
                    shutil.copyfileobj(source, stream, _BLOCK)
        return
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as target:
        for name, path in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as source:
                target.addfile(entry, source)


def require_suffix(file: Path) -> str:
    """`.zip` or `.tar`, by the file's name."""
    suffix = file.suffix
    if suffix not in SUFFIXES:
        raise StillmeError(f"{file.name} should end in .zip or .tar.")
    return suffix


def unpack(file: Path, folder: Path) -> list[str]:
    """Write the members of an archive into `folder` and return their names; nothing lands outside of it."""
    names: list[str] = []
    with _opened(file) as members:
        for name, stream in members:
            if not is_inside(name):
                raise StillmeError(
                    f"{file} holds {name!r}, which would land outside of it. It was not made by stillme."
                )
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as written:
                shutil.copyfileobj(stream, written, _BLOCK)
            names.append(name)
    return names


@contextmanager
def _opened(file: Path) -> Generator[Iterator[tuple[str, IO[bytes]]]]:
    if not file.is_file():
        raise StillmeError(f"{file} does not exist. `stillme export RUN --bundle {file}` makes a bundle.")
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as source:
                yield _zipped(source)
        else:
            with tarfile.open(file, "r:") as source:
                yield _tarred(source)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise StillmeError(f"{file} is no whole zip or tar archive ({error}). Fetch it again.") from None


def _zipped(source: zipfile.ZipFile) -> Iterator[tuple[str, IO[bytes]]]:
    for entry in source.infolist():
        if not entry.is_dir():
            with source.open(entry) as stream:
                yield entry.filename, stream


def _tarred(source: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for entry in source:
        stream = source.extractfile(entry) if entry.isfile() else None
        if stream is not None:
            yield entry.name, stream
