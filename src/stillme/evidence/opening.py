"""Open a bundle as a run, to read it like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stillme.evidence import archive
from stillme.evidence.bundle import as_run
from stillme.results import Run


@contextmanager
def opened_bundle(file: Path) -> Generator[Run]:
    """The run in a bundle, for as long as the block lasts. Whether it is sound only `verify` says."""
    with tempfile.TemporaryDirectory(prefix="stillme-bundle-") as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        archive.unpack(file, folder)
        with as_run(folder, Path(name) / file.stem) as run:
            yield run
