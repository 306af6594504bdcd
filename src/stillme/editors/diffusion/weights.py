"""Weights: a repository on the hub, a folder or a file, and what identifies their content."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from stillme.core.files import sha256_of
from stillme.core.protocols import Parameters
from stillme.core.types import Json

_THREADS = 8
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Weights:
    """Where an audit's weights are."""

    repo: str
    revision: str
    is_folder: bool
    """Whether they are a local folder."""
    file: str = ""
    """One file of the repository or folder; empty for all of it."""

    @classmethod
    def from_parameters(cls, parameters: Parameters, repo: str, revision: str, file: str = "") -> Weights:
        """A folder starts with `.`, `/` or `~`, or exists; everything else is a repository."""
        folder = parameters.path(repo)
        is_folder = repo.startswith((".", "/", "~")) or folder.is_dir()
        return cls(str(folder) if is_folder else repo, revision, is_folder, file)

    @property
    def folder(self) -> Path:
        """The folder, if it is one."""
        return Path(self.repo).expanduser()

    def identity(self) -> dict[str, Json]:
        """Their part of the key: a folder is identified by its content, not its place."""
        if not self.is_folder:
            return {"repo": self.repo, "revision": self.revision}
        place = self.folder / self.file if self.file else self.folder
        return {"repo": self.folder.resolve().name, "revision": f"sha256:{content_hash(place)}"}

    def missing(self, named: str) -> str:
        """Why they cannot be there, as far as known without a download; empty if they may be. `named`: by what."""
        if not self.is_folder and self.repo.count("/") > 1:
            return f"`{named} = {self.repo!r}` is neither a folder nor a repository; write a path or owner/name"
        if self.is_folder and not self.folder.is_dir():
            return f"`{named}` is the folder {self.repo}, which does not exist; write the path of a folder with weights"
        if self.is_folder and self.file and not (self.folder / self.file).is_file():
            return f"`{named}` names the file {self.file}, which {self.repo} does not have; name a file in that folder"
        return ""

    def index(self) -> dict[str, Any]:
        """The pipeline's model_index.json, if it is on this machine; nothing is downloaded."""
        file = self.folder / "model_index.json" if self.is_folder else self._cached_index()
        if file is None or not file.is_file():
            return {}
        return cast("dict[str, Any]", json.loads(file.read_text("utf-8")))

    def local(self, part: str) -> Path | None:
        """A subfolder such as `tokenizer`, if it is on this machine."""
        if self.is_folder:
            folder = self.folder / part
            return folder if folder.is_dir() else None
        index = self._cached_index()
        return index.parent / part if index and (index.parent / part).is_dir() else None

    def _cached_index(self) -> Path | None:
        if find_spec("huggingface_hub") is None:
            return None
        hub: Any = import_module("huggingface_hub")
        try:
            file = hub.try_to_load_from_cache(self.repo, "model_index.json", revision=self.revision)
        except ValueError:  # not a valid name on the hub
            return None
        return Path(file) if isinstance(file, str) else None


def content_hash(place: Path) -> str:
    """128 bits over the names and contents of every file that is not hidden; of a single file, over its content."""
    files = [place] if place.is_file() else _files_in(place)
    names = [file.name if file == place else file.relative_to(place).as_posix() for file in files]
    total = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS) as threads:
        # hashlib releases the GIL, so the threads really run at the same time.
        for name, value in zip(names, threads.map(_hash_of, files), strict=True):
            total.update(json.dumps([name, value]).encode())
    return total.hexdigest()[:32]


def _files_in(folder: Path) -> list[Path]:
    visible = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in visible if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _hash_of(file: Path) -> str:
    """A file's SHA-256: the hub's cache links to large files by it, others are read."""
    blob = file.resolve()
    if file.is_symlink() and blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name):
        return blob.name
    return sha256_of(file)
