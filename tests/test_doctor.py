"""The doctor tells the truth: what imports, what fits, who may download, and which plugin is broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillme.api import catalogue, doctor
from stillme.api.doctor import examine, tried_imports
from stillme.core import registry
from stillme.core.errors import BrokenPlugin
from stillme.core.protocols import Editor
from stillme.editors.diffusion import machine
from stillme.editors.diffusion.machine import Gpu
from stillme.editors.diffusion.traits import presets
from stillme.editors.diffusion.weights import Weights
from stillme.editors.http import HttpEditor
from stillme.findings.exchange import ColumnMapping, RowsAsked, import_rows


def test_an_import_is_really_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a torchvision of another build: it is there, and `find_spec` finds it."""
    (tmp_path / "there.py").write_text("fine = 1\n")
    (tmp_path / "hollow.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    (tmp_path / "deadly.py").write_text("import os\nprint('hello', flush=True)\nos._exit(7)\n")
    wrapped = "def __getattr__(name):\n    try:\n        import hollow\n    except RuntimeError as e:\n"
    (tmp_path / "lazy.py").write_text(wrapped + "        raise ImportError('look above') from e\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    faults = tried_imports(["there", "there:fine", "deadly", "hollow", "lazy", "lazy:Pipeline", "there:absent"])
    nms = "RuntimeError: operator torchvision::nms does not exist"
    assert faults == {
        "there": "",
        "there:fine": "",
        "deadly": "the import ends the process with 7",
        "hollow": nms,
        "lazy": "",
        "lazy:Pipeline": nms,
        "there:absent": "AttributeError: module 'there' has no attribute 'absent'",
    }


class _Hostile(Editor):
    """Raises wherever it can."""

    def __init__(self, parameters: Any) -> None:
        self.spec = SimpleNamespace(key="x")

    @property
    def capabilities(self) -> Any:
        raise KeyError("no capabilities")

    def lacking(self, *, online: bool) -> Iterator[str]:
        raise OSError("no driver")

    def edit(self, requests: Any) -> Any: ...


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    entry: Any = SimpleNamespace(name="hostile", value="nowhere", dist=None, load=lambda: _Hostile)
    plugins = {kind: dict(registry.plugins(kind)) for kind in ("editor", "judge", "prompt set", "portrait set")}
    plugins["editor"] = {"hostile": registry.Registered("editor", "hostile", entry), "noop": plugins["editor"]["noop"]}
    plugins["judge"] = {"scripted": plugins["judge"]["scripted"]}
    monkeypatch.setattr(registry, "plugins", lambda kind: plugins[kind])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_plugin_that_raises_hides_nobody_else(hostile: None, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    checks = {check.name: check for check in examine()}
    assert checks["editor hostile"].state == "broken"
    assert checks["editor hostile"].detail == "OSError: no driver"
    assert checks["editor noop"].state == checks["judge scripted"].state == "ok"
    listed = {entry.title: entry.summary for entry in catalogue.catalogue("editors", None)}
    assert listed["hostile"] == "[broken: KeyError: 'no capabilities']"
    assert "broken" not in listed["noop"]


def test_offline_the_hub_s_word_is_unknown_and_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "get_token", lambda: "hf_token")
    monkeypatch.setattr(hub, "whoami", lambda: pytest.fail("asked"))
    monkeypatch.setattr(doctor.socket, "create_connection", lambda *_: pytest.fail("asked"))
    assert not doctor._online()
    with pytest.raises(doctor._Absent, match="is unknown"):
        doctor._hub(online=False)
    monkeypatch.setattr(hub, "whoami", lambda: {"name": "ada"})
    assert doctor._hub(online=True) == "logged in as ada"


def card(total: float, free: float | None = None) -> Gpu:
    return Gpu(name="a card", total_gb=total, free_gb=total if free is None else free)


@pytest.mark.parametrize(
    ("cards", "sentence"),
    [
        ([], "no NVIDIA GPU is seen (nvidia-smi); it needs one with about 112 GB"),
        ([card(24.0)], "it needs about 112 GB, and a card has 24 GB; use 'flux2-dev-24gb'"),
        ([card(24.0), card(51.0)], "it needs about 112 GB, and a card has 51 GB; use 'flux2-dev-48gb'"),
        ([card(85.9)], "it needs about 112 GB, and a card has 86 GB; use 'flux2-dev-80gb'"),
        ([card(8.0)], "it needs about 112 GB, and a card has 8 GB; set `quantisation` and `offload`"),
        ([card(141.0, 20.0)], "only 20 of 141 GB are free on a card, and it needs about 112; end what uses the GPU"),
        ([card(141.0)], ""),
    ],
)
def test_memory_is_held_against_the_cards(cards: list[Gpu], sentence: str) -> None:
    assert "".join(machine.too_small(112.0, cards, presets()["flux2-dev"])) == sentence


def test_the_disk_is_held_against_what_is_still_to_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: SimpleNamespace(free=50e9))
    weights = Weights("a/b", "main", False)
    [sentence] = machine.no_space(weights, 112.0)
    assert f"about 112 GB of disk, and 50 GB are free in {tmp_path}" in sentence
    assert list(machine.no_space(weights, 40.0)) == []


def test_a_licence_that_was_not_accepted_is_named_with_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    httpx = pytest.importorskip("httpx")
    from huggingface_hub.errors import GatedRepoError

    def refuse(repo: str) -> None:
        raise GatedRepoError("no", response=httpx.Response(403, request=httpx.Request("GET", "https://x")))

    monkeypatch.setattr(hub, "auth_check", refuse)
    [sentence] = machine.no_access(Weights("black-forest-labs/FLUX.2-dev", "main", False))
    assert "accept its licence at https://huggingface.co/black-forest-labs/FLUX.2-dev" in sentence


def test_step1x_is_not_ready_without_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    editor = doctor._built("editor", "step1x-edit-v1p2")
    assert editor is not None
    [sentence, *_] = doctor._lacking(editor.needs, editor, {}, online=False)
    assert "`python` is missing: Step1X runs in its own environment" in sentence
    assert sys.executable not in sentence


def test_what_needs_parameters_is_not_called_ready(hostile: None, monkeypatch: pytest.MonkeyPatch) -> None:
    entry: Any = SimpleNamespace(name="http", value="nowhere", dist=None, load=lambda: HttpEditor)
    plugins = {"http": registry.Registered("editor", "http", entry)}
    monkeypatch.setattr(registry, "plugins", lambda kind: plugins if kind == "editor" else {})
    (check,) = doctor._plugins("editor", {}, online=False)
    assert (check.state, check.detail) == ("ok", "installed; it needs parameters, which an audit checks")


def test_a_gpu_that_torch_cannot_use_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(doctor, "gpus", lambda: [card(24.0)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check = doctor._tried("GPUs", doctor._gpus)
    assert check.state == "lacking"
    assert "a card, 24 of 24 GB free; but torch" in check.detail
    assert "install a torch for your GPU" in check.detail


@pytest.mark.parametrize(("kind", "what"), [("prompt set", "prompts"), ("portrait set", "portraits")])
def test_a_set_that_raises_hides_no_other(kind: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def boom() -> Any:
        raise RuntimeError("no data")

    entry: Any = SimpleNamespace(name="hostile", value="nowhere", dist=None, load=lambda: boom)
    plugins = {"hostile": registry.Registered(kind, "hostile", entry), **registry.plugins(kind)}
    monkeypatch.setattr(registry, "plugins", lambda _: plugins)
    broken, *others = catalogue.catalogue(what, None)
    assert "cannot be read (RuntimeError: no data)" in broken.summary
    assert others
    with pytest.raises(BrokenPlugin, match="no data"):
        catalogue.catalogue(what, "hostile")


def test_a_run_of_imported_rows_lacks_no_picture(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("portrait,edit_success\na,3\nb,4\n")
    import_rows(tmp_path / "rows.csv", tmp_path / "run", RowsAsked(), ColumnMapping())
    assert [check.state for check in doctor.examine_run(tmp_path / "run")] == ["ok"] * 7
