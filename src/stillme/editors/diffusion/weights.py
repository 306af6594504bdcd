"""Weights: a repository on the hub, a folder or a file; what identifies them, and the hub's refusals in words."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from stillme.core.errors import StillmeError
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


_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = 20.0
_ANOTHER = "write another `revision`"
_REDONE = " and add `--allow-changes`: edits that were made with this one are then redone"


class UnusableWeights(StillmeError):
    """Weights or a device that no edit can be made with until the user acts."""


def resolve(sources: Sequence[Weights], recorded: Sequence[Mapping[str, Json]]) -> list[str]:
    """What each revision means: a commit, or the hash of a folder.

    `recorded` is what earlier edits under the same key were made with; a run keeps to it, although a branch has moved.
    """
    if len(recorded) > 1:
        commits = " and ".join(str(weights.get("revision"))[:12] for weights in recorded)
        raise UnusableWeights(
            f"the edits of this run were made with different weights of {sources[0].repo} ({commits}), so they cannot "
            f'be continued; write `revision = "{recorded[-1].get("revision")}"` and add `--allow-changes` to redo them'
        )
    if recorded:
        return [str(entry["revision"]) for entry in _entries(recorded[0])]
    return [commit_of(weights) for weights in sources]


def record_of(sources: Sequence[Weights], commits: Sequence[str]) -> dict[str, Json]:
    """What is stored with every edit: `resolve` reads it again."""
    entries: list[dict[str, Json]] = [
        {
            # A folder's place says nothing, and would tell a moved folder from itself.
            "repo": weights.folder.resolve().name if weights.is_folder else weights.repo,
            **({"file": weights.file} if weights.file else {}),
            "revision": commit,
        }
        for weights, commit in zip(sources, commits, strict=True)
    ]
    return {**entries[0], **({"others": entries[1:]} if len(entries) > 1 else {})}


def _entries(record: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    yield record
    yield from record.get("others", ())


def commit_of(weights: Weights) -> str:
    """The commit that a revision means now: asked from the hub or, offline, from the local cache."""
    if weights.is_folder:
        return str(weights.identity()["revision"])
    if _COMMIT.fullmatch(weights.revision):
        return weights.revision
    hub: Any = import_module("huggingface_hub")
    errors: Any = import_module("huggingface_hub.errors")
    try:
        return str(hub.model_info(weights.repo, revision=weights.revision, timeout=_TIMEOUT).sha)
    except Exception as error:
        # The hub answered: what it says counts. Without an answer, the cache does.
        response: Any = getattr(error, "response", None)
        if isinstance(error, errors.HfHubHTTPError) and response is not None and response.status_code < 500:
            raise UnusableWeights(explained(error, weights)) from None
        if commit := _cached_commit(weights):
            return commit
        raise UnusableWeights(explained(error, weights)) from None


def _cached_commit(weights: Weights) -> str:
    constants: Any = import_module("huggingface_hub.constants")
    name = import_module("huggingface_hub.file_download").repo_folder_name(repo_id=weights.repo, repo_type="model")
    reference = Path(constants.HF_HUB_CACHE) / name / "refs" / weights.revision
    return reference.read_text("utf-8").strip() if reference.is_file() else ""


def fetched(weights: Weights, name: str, commit: str) -> Path:
    """One file of the weights, downloaded if need be."""
    if weights.is_folder:
        file = weights.folder / name
        if not file.is_file():
            raise UnusableWeights(f"{weights.repo} has no {name}; name a folder that has it")
        return file
    hub: Any = import_module("huggingface_hub")
    try:
        return Path(hub.hf_hub_download(weights.repo, name, revision=commit))
    except Exception as error:
        raise UnusableWeights(explained(error, weights, commit)) from None


def fetched_folder(weights: Weights, part: str, commit: str) -> Path:
    """A subfolder of the weights, downloaded if need be."""
    if weights.is_folder:
        return weights.folder / part
    hub: Any = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(weights.repo, revision=commit, allow_patterns=[f"{part}/*"])) / part
    except Exception as error:
        raise UnusableWeights(explained(error, weights, commit)) from None


def size_gb(weights: Weights, commit: str) -> float:
    """Gigabytes of the components' weights, as far as known without a download; otherwise 0."""
    if weights.is_folder:
        sizes = [file.stat().st_size for file in weights.folder.glob("*/*.safetensors")]
        return sum(sizes) / 1e9
    hub: Any = import_module("huggingface_hub")
    try:
        files = hub.model_info(weights.repo, revision=commit, files_metadata=True, timeout=_TIMEOUT).siblings
    except Exception:  # offline: what the cache has
        index = hub.try_to_load_from_cache(weights.repo, "model_index.json", revision=commit)
        folder = Path(index).parent if isinstance(index, str) else None
        return sum(file.stat().st_size for file in folder.glob("*/*.safetensors")) / 1e9 if folder else 0.0
    wanted = (file for file in files or () if file.rfilename.endswith(".safetensors") and "/" in file.rfilename)
    return sum(file.size or 0 for file in wanted) / 1e9


def explained(error: BaseException, weights: Weights, commit: str = "") -> str:
    """One sentence: what happened to which weights, and what to do."""
    errors: Any = import_module("huggingface_hub.errors")
    repo = weights.repo
    # A commit that is known although the hub does not answer comes from edits that were made, or from `revision`.
    named = commit and commit != weights.revision
    another = f"{_ANOTHER}{_REDONE}" if named else _ANOTHER
    # Both libraries wrap the hub's answer in errors of their own.
    for cause in _causes(error):
        if "torchvision" in str(cause) and isinstance(cause, ImportError | RuntimeError | AttributeError):
            reason = " ".join(str(cause).split())[:300]
            return f"torchvision cannot be used ({reason}); install the one that belongs to your torch"
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(cause, errors.GatedRepoError):
            return (
                f"{repo} is gated: accept its licence at https://huggingface.co/{repo}, then run `hf auth login` with "
                "a token of that account"
            )
        if isinstance(cause, errors.RevisionNotFoundError):
            return f"{repo} has no revision {commit or weights.revision!r}; {another}"
        if status in (401, 403) and not isinstance(cause, errors.RepositoryNotFoundError):
            return f"the hub rejects the token (HTTP {status}, asked for {repo}); run `hf auth login` with a valid one"
        if isinstance(cause, errors.RepositoryNotFoundError):
            return (
                f"{repo} is not on the hub, or is private, or the token is wrong; check `repo` and "
                "`hf auth whoami`, or run `hf auth login`"
            )
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return f"the disk is full while {repo} is downloaded; free space, or set HF_HOME to a larger disk"
        if isinstance(cause, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
            which = f" at {commit[:12]}" if commit else ""
            return f"{repo}{which} is not on this machine, and the hub cannot be reached; connect, or {another}"
    return f"{repo} cannot be loaded: {type(error).__name__}: {str(error).strip()}"[:2000]


def _causes(error: BaseException | None) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
