"""Archives whose bytes depend on their contents alone, and an unpacking that trusts nothing."""

from __future__ import annotations

import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stillme.core.errors import StillmeError
from stillme.core.files import BUNDLE_SUFFIXES

MAX_ENTRIES = 250_000
"""Files of one bundle; a picture is one file."""
MAX_BYTES = 64 * 10**9
"""Of all files, unpacked."""
MAX_RATIO = 100
"""Unpacked size to the archive's own size. Rows with long raw answers reach about 50."""
ALWAYS_ALLOWED = 64 * 10**6
"""Bytes that any archive may unpack to, whatever its ratio: small rows compress well."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20
_PART = r"[A-Za-z0-9_](?:[\w.-]*\w)?"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
"""Names that stillme writes: relative, without `.`, `..`, `\\` or anything that a file system reads in its own way."""
_ENCRYPTED = 0x1
_HEADER, _LISTED, _DESCRIPTOR, _END = 30, 46, 24, 98
"""Bytes of a zip file: a member's header, its line in the list, what may follow its data, and the end of the list."""


class Unsafe(StillmeError):
    """An archive that stillme did not write, and that is not unpacked."""


def pack(file: Path, members: Mapping[str, Path], suffix: str) -> None:
    """Write members in the order of their names, without times, owners or anything else of this machine."""
    total = sum(path.stat().st_size for path in members.values())
    if len(members) > MAX_ENTRIES or total > MAX_BYTES:
        raise StillmeError(
            f"The bundle would have {len(members):,} files and {total:,} bytes; `stillme verify` reads at most "
            f"{MAX_ENTRIES:,} files and {MAX_BYTES:,} bytes. Leave out --with-images."
        )
    if suffix == ".zip":
        _pack_zip(file, members)
        if total > _allowed(file):
            raise StillmeError(
                f"The bundle would be compressed more than {MAX_RATIO}:1, which `stillme verify` refuses. "
                "Give it a name that ends in .tar."
            )
        return
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as target:
        for name, path in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as source:
                target.addfile(entry, source)


def _pack_zip(file: Path, members: Mapping[str, Path]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
        for name, path in sorted(members.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            with path.open("rb") as source, target.open(entry, "w", force_zip64=True) as stream:
                shutil.copyfileobj(source, stream, _BLOCK)


def require_suffix(file: Path) -> str:
    """`.zip` or `.tar`, by the file's name."""
    suffix = file.suffix
    if suffix not in BUNDLE_SUFFIXES:
        raise StillmeError(f"{file.name} should end in .zip or .tar.")
    return suffix


def unpack(file: Path, folder: Path) -> list[str]:
    """Write the members of an archive into a new `folder` and return their names.

    Refuses what stillme never writes: a name twice, names that leave the folder, links and special files, and archives
    beyond the limits above.
    """
    folder.mkdir(parents=True)
    names: dict[str, str] = {}
    left = _allowed(file) if file.is_file() else 0
    with _opened(file) as members:
        for name, stream in members:
            if not _NAME.fullmatch(name):
                raise Unsafe(f"{file} holds {name!r}, a name outside of what stillme writes. {_DISTRUST}")
            # Some file systems do not tell upper from lower case.
            if name.lower() in names:
                raise Unsafe(f"{file} holds {name!r} twice. {_DISTRUST}")
            names[name.lower()] = name
            if len(names) > MAX_ENTRIES:
                raise Unsafe(f"{file} holds more than {MAX_ENTRIES:,} files. {_DISTRUST}")
            left = _write(file, stream, folder / name, left)
    return list(names.values())


_DISTRUST = "stillme did not make it: do not trust it, and ask for the original."


def _write(file: Path, stream: IO[bytes], target: Path, left: int) -> int:
    """Write one member and return how many bytes may still come; declared sizes are not believed."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as written:
            while block := stream.read(_BLOCK):
                left -= len(block)
                if left < 0:
                    raise Unsafe(
                        f"{file} unpacks to more than {_allowed(file):,} bytes (at most {MAX_RATIO} times its size and "
                        f"{MAX_BYTES:,}). {_DISTRUST}"
                    )
                written.write(block)
    except (FileExistsError, NotADirectoryError):
        raise Unsafe(f"{file} holds a file where another has its folder, near {target.name!r}. {_DISTRUST}") from None
    return left


def _allowed(file: Path) -> int:
    return min(MAX_BYTES, max(ALWAYS_ALLOWED, MAX_RATIO * file.stat().st_size))


@contextmanager
def _opened(file: Path) -> Generator[Iterator[tuple[str, IO[bytes]]]]:
    if not file.is_file():
        raise StillmeError(f"{file} does not exist. `stillme export RUN --bundle {file}` makes a bundle.")
    try:
        # By its first bytes: a zip archive may be appended to a tar archive, and two readers would see two bundles.
        with file.open("rb") as stream:
            is_zip = stream.read(4) == b"PK\x03\x04"
        if is_zip:
            with zipfile.ZipFile(file) as source:
                yield _zipped(file, source)
        else:
            with tarfile.open(file, "r:") as source:
                yield _tarred(file, source)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise StillmeError(f"{file} is not a complete zip or tar file ({error}). Fetch it again.") from None


def _zipped(file: Path, source: zipfile.ZipFile) -> Iterator[tuple[str, IO[bytes]]]:
    _require_no_gaps(file, source)
    for entry in source.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() and kind in (0, stat.S_IFDIR):
            continue
        known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if kind not in (0, stat.S_IFREG) or not known or entry.flag_bits & _ENCRYPTED:
            raise Unsafe(f"{file} holds {entry.filename!r}, which is no plain file. {_DISTRUST}")
        # zipfile cuts a name at a zero byte.
        with source.open(entry) as stream:
            yield entry.orig_filename, stream


def _require_no_gaps(file: Path, source: zipfile.ZipFile) -> None:
    """Members follow each other from the first byte on, and their list ends the file.

    Before, between or behind them another archive could hide, which other readers would unpack.
    """
    entries = sorted(source.infolist(), key=lambda entry: entry.header_offset)
    ends = [0]
    with file.open("rb") as stream:
        for entry in entries:
            stream.seek(entry.header_offset)
            header = stream.read(_HEADER)
            names = sum(int.from_bytes(header[place : place + 2], "little") for place in (26, 28))
            ends.append(entry.header_offset + _HEADER + names + entry.compress_size)
    begins = [*(entry.header_offset for entry in entries), source.start_dir]
    gaps = [begin - end for begin, end in zip(begins, ends, strict=True)]
    listed = sum(_LISTED + len(entry.orig_filename.encode()) + len(entry.extra) for entry in entries)
    rest = file.stat().st_size - source.start_dir - listed
    if gaps[0] or not all(0 <= gap <= _DESCRIPTOR for gap in gaps) or source.comment or not 0 <= rest <= _END:
        raise Unsafe(f"{file} holds bytes that belong to none of its files. {_DISTRUST}")


def _tarred(file: Path, source: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for entry in source:
        if entry.isdir():
            continue
        stream = source.extractfile(entry) if entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) else None
        if stream is None or entry.issparse():
            raise Unsafe(f"{file} holds {entry.name!r}, which is no plain file (a link or a device). {_DISTRUST}")
        yield entry.name, stream
    with file.open("rb") as stream:
        stream.seek(source.offset)
        while block := stream.read(_BLOCK):
            if block.strip(b"\0"):
                raise Unsafe(f"{file} holds bytes behind the end of its files. {_DISTRUST}")
