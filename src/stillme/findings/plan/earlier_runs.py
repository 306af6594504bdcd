"""Runs that a plan looks at: each is opened and gathered once, however many questions are asked of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from stillme.runs import Run, folder_of


class EarlierRuns:
    """Opens runs when they are first asked for, and closes them all at the end."""

    def __init__(self) -> None:
        self._open: dict[Path, Run] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def at(self, path: Path) -> Run:
        """The run of a folder or an audit.toml."""
        folder = folder_of(path).resolve()
        if folder not in self._open:
            self._open[folder] = self._stack.enter_context(Run.open(folder_of(path)))
        return self._open[folder]
