"""Weights: a repository on the hub or a folder, and what identifies their content."""

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
"""Bytes read from each end of a file: training changes all of them, and hashing 60 GB takes minutes."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Where an audit's weights are."""

    repo: str
    revision: str
    is_folder: bool
    """Whether they are a local folder."""

    @classmethod
    def from_parameters(cls, parameters: Parameters, repo: str, revision: str) -> Weights:
        """A folder starts with `.`, `/` or `~`, or exists; everything else is a repository."""
        folder = parameters.path(repo)
        is_folder = repo.startswith((".", "/", "~")) or folder.is_dir()
        return cls(str(folder) if is_folder else repo, revision, is_folder)

    @property
    def folder(self) -> Path:
        """The folder, if it is one."""
        return Path(self.repo).expanduser()

    def identity(self) -> dict[str, Json]:
        """Their part of the key: a folder is identified by its content, not its place."""
        if not self.is_folder:
            return {"repo": self.repo, "revision": self.revision}
        return {"repo": self.folder.resolve().name, "revision": f"sampled-sha256:{fingerprint(self.folder)}"}

    def index(self) -> dict[str, Any]:
        """The pipeline's model_index.json, if it is on this machine; nothing is downloaded."""
        file = self.folder / "model_index.json" if self.is_folder else self._cached("model_index.json")
        if file is None or not file.is_file():
            return {}
        return cast("dict[str, Any]", json.loads(file.read_text("utf-8")))

    def local(self, part: str) -> Path | None:
        """A subfolder such as `tokenizer`, if it is on this machine."""
        if self.is_folder:
            folder = self.folder / part
            return folder if folder.is_dir() else None
        index = self._cached("model_index.json")
        return index.parent / part if index and (index.parent / part).is_dir() else None

    def _cached(self, name: str) -> Path | None:
        if find_spec("huggingface_hub") is None:
            return None
        hub: Any = import_module("huggingface_hub")
        try:
            file = hub.try_to_load_from_cache(self.repo, name, revision=self.revision)
        except ValueError:  # not a valid name on the hub
            return None
        return Path(file) if isinstance(file, str) else None


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
