"""Weights are what they say: named by all of their bytes or by a commit, and never two in one run."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from stillme.api.pipeline import run_stages
from stillme.core.types import Edited, Failed
from stillme.editors.diffusion import weights
from stillme.editors.diffusion.weights import Weights, content_hash
from stillme.runs.run import RecordedRun
from stillme.runs.status import status_of
from tests.editors.diffusion.conftest import THIRD_PARTY, Ask
from tests.editors.diffusion.test_editing import Folders, edit_one, tiny_editor
from tests.records import must_be

pytestmark = THIRD_PARTY

FIRST, SECOND = "a" * 40, "b" * 40
MEBIBYTE = 1 << 20


def weights_folder(folder: Path) -> Path:
    (folder / "transformer").mkdir(parents=True)
    (folder / "model_index.json").write_text('{"_class_name": "Flux2Pipeline"}')
    (folder / "transformer" / "model.safetensors").write_bytes(bytes(3 * MEBIBYTE))
    return folder


def change(file: Path, place: int) -> None:
    """Change one byte and nothing else that a listing shows."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(b"1")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("place", [0, MEBIBYTE + 17, 3 * MEBIBYTE - 1])
def test_any_byte_of_any_file_counts(tmp_path: Path, place: int) -> None:
    folder = weights_folder(tmp_path / "weights")
    before = content_hash(folder)
    change(folder / "transformer" / "model.safetensors", place)
    assert content_hash(folder) != before


def test_the_hub_s_own_hashes_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = weights_folder(tmp_path / "plain")
    sha256 = weights.sha256_of(plain / "transformer" / "model.safetensors")
    linked = weights_folder(tmp_path / "linked")
    (tmp_path / "blobs").mkdir()
    (linked / "transformer" / "model.safetensors").rename(tmp_path / "blobs" / sha256)
    (linked / "transformer" / "model.safetensors").symlink_to(tmp_path / "blobs" / sha256)
    expected = content_hash(plain)
    real = weights.sha256_of
    monkeypatch.setattr(
        weights, "sha256_of", lambda file: real(file) if file.suffix == ".json" else pytest.fail(file.name)
    )
    assert content_hash(linked) == expected


# -- commits ------------------------------------------------------------------------------------------------------


class Hub:
    """A hub's cache with two commits; `main` can be moved between them."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self.repo = cache / "models--somebody--tiny"
        for commit in (FIRST, SECOND):
            shutil.copytree(folder, self.repo / "snapshots" / commit)
        (self.repo / "refs").mkdir()
        self.move(FIRST)

    def move(self, commit: str) -> None:
        (self.repo / "refs" / "main").write_text(commit)

    def lose(self, commit: str) -> None:
        shutil.rmtree(self.repo / "snapshots" / commit)


@pytest.fixture
def cached_hub(offline: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return Hub(tmp_path / "hub", offline["kontext"])


def test_a_branch_is_recorded_by_its_commit(cached_hub: Hub, ask: Ask) -> None:
    editor = tiny_editor({"kontext": Path("somebody/tiny")}, "kontext")
    [problem] = editor.problems([], [ask("x" * 600).prompt])
    assert "reads 512" in problem, "the cached tokenizer is used"
    outcome = must_be(Edited, edit_one(editor, ask()))
    assert outcome.effective["weights"] == {"repo": "somebody/tiny", "revision": FIRST}
    assert editor.spec.parameters["revision"] == "main"


@pytest.fixture
def half_edited(cached_hub: Hub, write_audit: Callable[..., Path]) -> Path:
    """An audit with half of its edits, made at the first commit."""
    values = 'repo = "somebody/tiny", steps = 1, dtype = "float32", device = "cpu", size = [64, 64]'
    folder = write_audit(
        f'use = "flux1-kontext"\nname = "tiny"\nseeds = [42]\n'
        f"parameters = {{ {values}, extra = {{ _auto_resize = false }} }}"
    )
    run_stages(folder, ("edit",))
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        ledger.execute("DROP TRIGGER edit_refuses_delete")
        ledger.execute("DELETE FROM edit WHERE id > 6")
    return folder


def revisions(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        rows = ledger.execute("SELECT effective FROM edit WHERE outcome = 'edited' ORDER BY id")
        return [json.loads(effective)["weights"]["revision"] for (effective,) in rows]


def test_a_run_keeps_to_its_commit_when_the_branch_moves(cached_hub: Hub, half_edited: Path) -> None:
    cached_hub.move(SECOND)
    run_stages(half_edited, ("edit",))
    assert revisions(half_edited) == [FIRST] * 12
    shown = status_of(RecordedRun.open(half_edited))
    assert f"somebody/tiny at {FIRST[:12]} (12 edits)" in shown.as_text()
    assert "must not be pooled" not in shown.as_text()


def test_a_run_whose_commit_is_gone_refuses_to_mix(cached_hub: Hub, half_edited: Path) -> None:
    cached_hub.move(SECOND)
    cached_hub.lose(FIRST)
    worked = run_stages(half_edited, ("edit",))
    assert revisions(half_edited) == [FIRST] * 6
    assert f"somebody/tiny at {FIRST[:12]} is not on this machine" in worked.tallies[0].reason
    assert "--allow-changes" in worked.tallies[0].reason


def test_a_run_that_was_mixed_before_is_not_continued_and_says_so(half_edited: Path) -> None:
    with sqlite3.connect(half_edited / "stillme.sqlite") as ledger:
        ledger.execute("DROP TRIGGER edit_refuses_update")
        ledger.execute("UPDATE edit SET effective = replace(effective, ?, ?) WHERE id = 1", (FIRST, SECOND))
    worked = run_stages(half_edited, ("edit",))
    assert len(revisions(half_edited)) == 6
    assert "were made with different weights of somebody/tiny" in worked.tallies[0].reason
    shown = status_of(RecordedRun.open(half_edited))
    assert "warning: the edits of tiny were made with different weights" in shown.as_text()
    assert shown.as_json()["weights"][0]["mixed"]


@pytest.fixture
def refuse(cached_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The hub refuses what is asked of it."""
    import huggingface_hub.errors

    def refusing(kind: str, status: int, function: str = "model_info") -> None:
        response = httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co"))
        error = getattr(huggingface_hub.errors, kind)("refused", response=response)

        def fail(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(huggingface_hub, function, fail)

    return refusing


@pytest.fixture
def second(cached_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub says that the branch is at the second commit."""
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: SimpleNamespace(sha=SECOND))


TINY = {"kontext": Path("somebody/tiny")}
BRANCH = Weights("somebody/tiny", "main", False)


@pytest.mark.parametrize(
    ("kind", "status", "sentence"),
    [
        ("GatedRepoError", 403, "accept its licence at https://huggingface.co/somebody/tiny"),
        ("GatedRepoError", 401, "run `hf auth login`"),
        ("RepositoryNotFoundError", 401, "is not on the hub, or is private, or the token is wrong"),
        ("HfHubHTTPError", 401, "the hub rejects the token (HTTP 401"),
        ("RevisionNotFoundError", 404, "has no revision 'main'"),
    ],
)
def test_the_hub_s_refusals_end_the_run_in_one_sentence(
    refuse: Callable[..., None], ask: Ask, kind: str, status: int, sentence: str
) -> None:
    refuse(kind, status)
    outcome = must_be(Failed, edit_one(tiny_editor(TINY, "kontext"), ask()))
    assert outcome.fatal
    assert sentence in outcome.error


def test_a_licence_gate_is_met_before_any_weights(second: None, refuse: Callable[..., None], ask: Ask) -> None:
    refuse("GatedRepoError", 403, "hf_hub_download")
    outcome = must_be(Failed, edit_one(tiny_editor(TINY, "kontext"), ask()))
    assert outcome.fatal
    assert "is gated" in outcome.error


def test_an_outage_of_the_hub_uses_the_cache(refuse: Callable[..., None]) -> None:
    refuse("HfHubHTTPError", 503)
    assert weights.commit_of(BRANCH) == FIRST


def test_the_hub_is_asked_before_the_cache(second: None) -> None:
    assert weights.commit_of(BRANCH) == SECOND


def test_a_full_disk_is_named(installed: None) -> None:
    error = RuntimeError("cannot write")
    error.__cause__ = OSError(28, "No space left on device")
    assert "the disk is full while a/b is downloaded" in weights.explained(error, Weights("a/b", "main", False))
