"""Open a bundle as a run, to read it like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stillme.errors import StillmeError
from stillme.evidence import archive
from stillme.evidence.bundle import as_run
from stillme.evidence.hashes import Contents
from stillme.results import Run


@contextmanager
def opened_bundle(file: Path) -> Generator[Run]:
    """The run in a bundle, for as long as the block lasts. Whether its numbers are right only `verify` says."""
    with tempfile.TemporaryDirectory(prefix="stillme-bundle-") as name, Run.open(unpacked_run(file, Path(name))) as run:
        yield run


def unpacked_run(file: Path, scratch: Path) -> Path:
    """Unpack a bundle, check every hash, and make a run folder of it below `scratch`."""
    folder = scratch / "bundle"
    contents = Contents.of(file, folder, archive.unpack(file, folder))
    if difference := next(contents.differences(), None):
        raise StillmeError(f"{file} is not what was sealed: {difference}. `stillme verify {file}` shows all of it.")
    as_run(folder, scratch / file.stem).close()
    return scratch / file.stem
