"""The Hugging Face hub: which commit a revision means, single files, and its refusals in plain words."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from stillme.core.errors import StillmeError
from stillme.core.types import Json
from stillme.editors.diffusion.weights import Weights

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
