"""What a bundle is made of: its files, packed and unpacked with distrust, and their signature."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from stillme.core.errors import StillmeError
from stillme.core.files import BUNDLE_SUFFIX, SUMS, read_sums, sha256_of, sums_of
from stillme.core.types import Json
from stillme.runs import RecordedRun
from stillme.runs.store.merging import require_ledger
from stillme.runs.store.opening import LEDGER

FORMAT = 4
"""Of the bundle; counts up when an older stillme could not read it any more."""
ABOUT = "evidence.json"
IMAGES = "images"
REPORT = "report.html"
_NEEDED = (ABOUT, LEDGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """An unpacked bundle: what it says of itself, and the hashes of its files."""

    folder: Path
    names: frozenset[str]
    sums: bytes
    hashes: Mapping[str, str]
    about: Mapping[str, Json]
    """evidence.json; empty where it cannot be read."""

    @classmethod
    def of(cls, file: Path, folder: Path) -> Contents:
        """Unpack a bundle into a new `folder`; one of another format is refused."""
        names = unpack(file, folder)
        if SUMS not in names:
            raise StillmeError(f"{file} has no {SUMS}, so it is not an evidence bundle of stillme.")
        sums = (folder / SUMS).read_bytes()
        return cls(
            folder=folder,
            names=frozenset(names),
            sums=sums,
            hashes=read_sums(sums.decode("utf-8", "replace")),
            about=_about(folder),
        )

    @property
    def root(self) -> str:
        """The hash of SHA256SUMS, which names every byte of the bundle."""
        return hashlib.sha256(self.sums).hexdigest()

    @property
    def sealed_by(self) -> str:
        """The version of stillme that made it."""
        return str(self.about.get("stillme", "an unknown version"))

    def differences(self) -> Iterator[Difference]:
        """Files that are missing, were added, or have other bytes than were sealed."""
        if self.sums != sums_of(self.hashes).encode():
            yield Difference(file=SUMS, what="has a name twice, or is not written as stillme writes it")
        for name in sorted({*self.hashes, *_NEEDED}):
            path, sha256 = self.folder / name, self.hashes.get(name)
            if name not in self.names:
                yield Difference(file=name, what="is missing")
            elif sha256 and (actual := sha256_of(path)) != sha256:
                yield Difference(file=name, what="is not the file that was sealed", expected=sha256, found=actual)
            elif sha256 and name.startswith(f"{IMAGES}/") and path.stem != sha256:
                yield Difference(file=name, what="is named by another hash", expected=path.stem, found=sha256)
        for name in sorted(self.names - set(self.hashes) - {SUMS}):
            yield Difference(file=name, what="was added after sealing")


def _about(folder: Path) -> Mapping[str, Json]:
    try:
        about: Json = json.loads((folder / ABOUT).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(about, dict):
        return {}
    known = cast("dict[str, Json]", about)
    if known.get("format") != FORMAT:
        raise StillmeError(
            f"The bundle has format {known.get('format')!r}, this stillme reads {FORMAT}. "
            f"It was sealed by stillme {known.get('stillme')!r}: install that version to verify it."
        )
    return known


@contextmanager
def opened_bundle(file: Path) -> Generator[RecordedRun]:
    """The run in a bundle, for as long as the block lasts. Whether its numbers are right only `verify` says."""
    with (
        tempfile.TemporaryDirectory(prefix="stillme-bundle-") as name,
        RecordedRun.open(unpacked_run(file, Path(name))) as run,
    ):
        run.opened_from = file
        yield run


def unpacked_run(file: Path, scratch: Path) -> Path:
    """Unpack a bundle into a run folder below `scratch`, and check every hash."""
    folder = scratch / file.stem
    contents = Contents.of(file, folder)
    if difference := next(contents.differences(), None):
        raise StillmeError(f"{file} is not what was sealed: {difference}. `stillme verify {file}` shows all of it.")
    require_ledger(folder / LEDGER)
    return folder


def one_line(text: str) -> str:
    """Text from a bundle as one line: line breaks and control characters would let it print a verdict of its own."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it should be, and where."""

    file: str
    what: str
    row: int | None = None
    """Counted from 1, without a header."""
    column: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        place = self.file + (f", row {self.row}" if self.row else "") + (f", {self.column}" if self.column else "")
        values = f": expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        return one_line(f"{place} ({self.what}){values}")


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


def pack(file: Path, members: Mapping[str, Path]) -> None:
    """Write members in the order of their names, without times, owners or anything else of this machine."""
    total = sum(path.stat().st_size for path in members.values())
    if len(members) > MAX_ENTRIES or total > MAX_BYTES:
        raise StillmeError(
            f"The bundle would have {len(members):,} files and {total:,} bytes; `stillme verify` reads at most "
            f"{MAX_ENTRIES:,} files and {MAX_BYTES:,} bytes. Leave out --with-images."
        )
    _pack(file, members, zipfile.ZIP_DEFLATED)
    if total > _allowed(file):
        # Compressed more than a reader trusts.
        _pack(file, members, zipfile.ZIP_STORED)


def _pack(file: Path, members: Mapping[str, Path], compression: int) -> None:
    with zipfile.ZipFile(file, "w", compression, compresslevel=6) as target:
        for name, path in sorted(members.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = compression
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            with path.open("rb") as source, target.open(entry, "w", force_zip64=True) as stream:
                shutil.copyfileobj(source, stream, _BLOCK)


def require_suffix(file: Path) -> None:
    """Refuse a name that readers would not take for a bundle's."""
    if file.suffix != BUNDLE_SUFFIX:
        raise StillmeError(f"{file.name} should end in {BUNDLE_SUFFIX}.")


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
        with zipfile.ZipFile(file) as source:
            yield _members(file, source)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise StillmeError(f"{file} is not a complete zip file ({error}). Fetch it again.") from None


def _members(file: Path, source: zipfile.ZipFile) -> Iterator[tuple[str, IO[bytes]]]:
    _require_no_gaps(file, source)
    for entry in source.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() and kind in (0, stat.S_IFDIR):
            continue
        known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if kind not in (0, stat.S_IFREG) or not known or entry.flag_bits & _ENCRYPTED:
            raise Unsafe(f"{file} holds {entry.filename!r}, which is not a plain file. {_DISTRUST}")
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


NAMESPACE = "stillme"
"""What the signature is for: one made for mail or commits does not count."""
SIGNATURE = ".sig"
_TOOL = "ssh-keygen"


def signature_of(sums: str, key: Path) -> bytes:
    """Sign the text of SHA256SUMS with a private key of OpenSSH."""
    tool = _tool()
    if not key.is_file():
        raise StillmeError(f"There is no key {key}. `{_TOOL} -t ed25519 -f {key}` makes one.")
    with tempfile.TemporaryDirectory(prefix="stillme-sign-") as name:
        file = Path(name) / SUMS
        file.write_text(sums, "utf-8", newline="")
        # Standard input stays open: a key with a passphrase asks for it.
        command = [tool, "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1].rstrip(".")
            raise StillmeError(f"{_TOOL} could not sign with {key} ({reason}). Give a private key.")
        return file.with_name(file.name + SIGNATURE).read_bytes()


def is_signed_by(sums: bytes, signature: Path, key: Path) -> bool:
    """Whether one of the public keys in `key` signed this text of SHA256SUMS."""
    tool = _tool()
    keys = _public_keys(key)
    if not signature.is_file():
        raise StillmeError(f"There is no signature {signature}. Ask for it, or verify with --root.")
    with tempfile.TemporaryDirectory(prefix="stillme-verify-") as name:
        allowed = Path(name) / "allowed_signers"
        allowed.write_text("".join(f'{NAMESPACE} namespaces="{NAMESPACE}" {line}\n' for line in keys), "utf-8")
        command = [tool, "-Y", "verify", "-f", str(allowed), "-I", NAMESPACE, "-n", NAMESPACE, "-s", str(signature)]
        return subprocess.run(command, input=sums, capture_output=True).returncode == 0


def _public_keys(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StillmeError(f"The public key {file} cannot be read. It is a text file that ends in .pub.") from None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or not all(line.startswith(("ssh-", "ecdsa-", "sk-")) for line in lines):
        raise StillmeError(f"{file} is not a public key of OpenSSH. Give the file that ends in .pub.")
    return lines


def _tool() -> str:
    tool = shutil.which(_TOOL)
    if tool is None:
        raise StillmeError(
            f"Signatures need {_TOOL} (OpenSSH 8.1 or later), which is not on this machine. Install openssh-client, or "
            "use the root: `stillme verify FILE --root HEX`."
        )
    return tool
