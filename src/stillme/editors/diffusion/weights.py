"""Which weights: a repository on the hub or a folder, and a name for exactly these bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from stillme.protocols import Parameters
from stillme.types import Json

_EDGE = 65536
"""Bytes read from each end of a file: training moves all of them, and hashing 60 GB takes minutes."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Where an audit says that its weights are."""

    repo: str
    revision: str
    is_folder: bool
    """Whether they lie in a folder of this machine."""

    @classmethod
    def meant_by(cls, parameters: Parameters, repo: str, revision: str) -> Weights:
        """A folder is written with a leading `.`, `/` or `~`, or exists; all else is a repository."""
        folder = parameters.path(repo)
        is_folder = repo.startswith((".", "/", "~")) or folder.is_dir()
        return cls(str(folder) if is_folder else repo, revision, is_folder)

    @property
    def folder(self) -> Path:
        """The folder, if it is one."""
        return Path(self.repo).expanduser()

    def keyed(self) -> dict[str, Json]:
        """What the key says of them: a folder counts by its content, wherever it lies."""
        if not self.is_folder:
            return {"repo": self.repo, "revision": self.revision}
        return {"repo": self.folder.resolve().name, "revision": f"sampled-sha256:{fingerprint(self.folder)}"}

    def index(self) -> dict[str, Any]:
        """The pipeline's model_index.json where it is at hand; nothing is downloaded."""
        found = self.folder / "model_index.json" if self.is_folder else self._cached("model_index.json")
        if found is None or not found.is_file():
            return {}
        return cast("dict[str, Any]", json.loads(found.read_text("utf-8")))

    def local(self, part: str) -> Path | None:
        """A subfolder such as `tokenizer`, if it is on this machine."""
        if self.is_folder:
            found = self.folder / part
            return found if found.is_dir() else None
        index = self._cached("model_index.json")
        return index.parent / part if index and (index.parent / part).is_dir() else None

    def _cached(self, name: str) -> Path | None:
        if find_spec("huggingface_hub") is None:
            return None
        hub: Any = import_module("huggingface_hub")
        try:
            found = hub.try_to_load_from_cache(self.repo, name, revision=self.revision)
        except ValueError:  # not a name that the hub could have
            return None
        return Path(found) if isinstance(found, str) else None


def fingerprint(folder: Path) -> str:
    """128 bits over names, sizes and both ends of every file."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in inside.parts):
            continue
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(_EDGE)
            stream.seek(max(0, size - _EDGE))
            tail = stream.read(_EDGE)
        total.update(json.dumps([inside.as_posix(), size]).encode())
        total.update(hashlib.sha256(head + tail).digest())
    return total.hexdigest()[:32]
