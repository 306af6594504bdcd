"""Is this machine ready for an audit? Each check tries the real thing."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from stillme import __version__, faces, images, registry
from stillme.errors import InvalidParameters, StillmeError
from stillme.store import Store

State = Literal["ok", "lacking", "broken"]

_MARKS: dict[State, str] = {"ok": "✓", "lacking": "·", "broken": "✗"}
_LEAST_FREE_GB = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check and its result."""

    name: str
    state: State
    """`lacking` is absent but optional; `broken` prevents every audit."""
    detail: str

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"name": self.name, "state": self.state, "detail": self.detail}

    def as_text(self) -> str:
        """One line."""
        return f"{_MARKS[self.state]} {self.name:<22} {self.detail}"


def examine() -> list[Check]:
    """Run every check; none stops the others."""
    checks = [
        _tried("versions", _versions),
        _tried("run folder", _run_folder),
        _tried("disk", _disk),
        _tried("embedded portraits", _portraits),
        _tried("face models", _face_models),
    ]
    return [*checks, *_plugins("editor"), *_plugins("judge")]


def _tried(name: str, attempt: Callable[[], str]) -> Check:
    try:
        return Check(name=name, state="ok", detail=attempt())
    except Exception as error:
        return Check(name=name, state="broken", detail=f"{type(error).__name__}: {error}")


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pillow", "onnxruntime"))
    python = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"stillme {__version__}, {python}, {packages}"


def _run_folder() -> str:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".stillme-doctor-") as folder:
        with Store.writing(Path(folder)) as writer, Store.reading(Path(folder)) as reader:
            writer.record_audit("doctor", {})
            if reader.latest_audit() is None:
                raise StillmeError("a reader does not see what a writer wrote; is this a network folder?")
        return f"{Path.cwd()} can hold a run"


def _disk() -> str:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    if free < _LEAST_FREE_GB:
        raise StillmeError(f"only {free:.1f} GB free in {Path.cwd()}; an audit of 5,000 edits needs about 5 GB")
    return f"{free:,.0f} GB free"


def _portraits() -> str:
    portraits = registry.portrait_set("synthetic")
    for portrait in portraits:
        images.check(portrait.image.path)
    return f"{len(portraits)} readable"


def _face_models() -> str:
    portrait = registry.portrait_set("synthetic")[0]
    count = len(faces.find(images.read_rgb(portrait.image.path)))
    if count != 1:
        raise StillmeError(f"{count} faces detected in portrait {portrait.id!r}, which has one; reinstall stillme")
    return "detect a face in a portrait"


def _plugins(kind: registry.Buildable) -> Iterator[Check]:
    for name in registry.plugins(kind):
        label = f"{kind} {name}"
        try:
            loaded = registry.editor_class(name) if kind == "editor" else registry.judge_class(name)
            lacking = registry.unmet(loaded.needs)
            with suppress(InvalidParameters):
                registry.build(kind, name, {}, ready=False)
        except StillmeError as error:
            yield Check(name=label, state="broken", detail=str(error))
            continue
        yield Check(name=label, state="lacking" if lacking else "ok", detail="; ".join(lacking) or "ready")
