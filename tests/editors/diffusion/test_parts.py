"""Weights from several places: replaced components, fused checkpoints, GGUF, adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillme.core.types import Edited
from tests.editors.diffusion import tiny
from tests.editors.diffusion.conftest import THIRD_PARTY, Ask
from tests.editors.diffusion.test_editing import Folders, edit_one, rgb, tiny_editor
from tests.records import must_be

pytestmark = THIRD_PARTY


@pytest.fixture
def other_transformer(offline: Folders, tmp_path: Path) -> Path:
    """A transformer of the same shape with other numbers, in a folder of its own."""
    import torch

    torch.manual_seed(1)
    transformer, _ = tiny._flux2_parts(guidance_embeds=True)
    transformer.save_pretrained(tmp_path / "other" / "transformer")
    return tmp_path / "other"


def test_a_component_from_elsewhere_is_really_used(offline: Folders, ask: Ask, other_transformer: Path) -> None:
    plain = edit_one(tiny_editor(offline, "flux2"), ask())
    editor = tiny_editor(offline, "flux2", components={"transformer": {"repo": str(other_transformer)}})
    assert list(editor.problems([], [])) == []
    replaced = edit_one(editor, ask())
    assert not np.array_equal(rgb(plain), rgb(replaced))
    assert isinstance(replaced, Edited)
    [other] = replaced.effective["weights"]["others"]
    assert other["repo"] == "other"
    assert other["revision"] == editor.spec.parameters["components"]["transformer"]["revision"]
    assert other["revision"].startswith("sha256:")


def test_a_fused_checkpoint_gives_the_same_edit_as_its_folder(
    offline: Folders, ask: Ask, other_transformer: Path
) -> None:
    file = "transformer/diffusion_pytorch_model.safetensors"
    folder = tiny_editor(offline, "flux2", components={"transformer": {"repo": str(other_transformer)}})
    single = tiny_editor(offline, "flux2", components={"transformer": {"repo": str(other_transformer), "file": file}})
    assert np.array_equal(rgb(edit_one(folder, ask())), rgb(edit_one(single, ask())))
    assert folder.spec.key != single.spec.key


def test_a_gguf_is_loaded_as_one(
    offline: Folders, ask: Ask, other_transformer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package that reads GGUF files is not installed here: what diffusers is asked for is checked instead."""
    import diffusers
    import torch

    (other_transformer / "model-Q4_K_M.gguf").write_bytes(b"GGUF")
    asked: dict[str, Any] = {}

    def from_single_file(cls: Any, path: str, **options: Any) -> Any:
        asked.update(options, path=path)
        return cls.from_pretrained(str(other_transformer / "transformer"))

    monkeypatch.setattr(diffusers.Flux2Transformer2DModel, "from_single_file", classmethod(from_single_file))
    part = {"repo": str(other_transformer), "file": "model-Q4_K_M.gguf"}
    editor = tiny_editor(offline, "flux2", components={"transformer": part})
    assert any("needs gguf: run `pip install gguf`" in problem for problem in editor.problems([], []))
    assert isinstance(edit_one(editor, ask()), Edited)
    assert asked["path"] == str(other_transformer / "model-Q4_K_M.gguf")
    assert asked["config"] == str(offline["flux2"] / "transformer")
    assert asked["quantization_config"].compute_dtype == torch.float32


def test_a_component_that_the_pipeline_does_not_have_is_named(
    offline: Folders, ask: Ask, other_transformer: Path
) -> None:
    outcome = edit_one(tiny_editor(offline, "flux2", components={"unet": {"repo": str(other_transformer)}}), ask())
    assert outcome.fatal
    assert "`components.unet` is not part of" in outcome.error


def test_adapters_are_loaded_by_commit_and_weighted(
    offline: Folders, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """peft is not installed here: the two calls that diffusers documents are faked, nothing else."""
    import diffusers

    commit = "c" * 40
    loaded: list[Any] = []
    weighted: list[Any] = []
    pipeline = diffusers.Flux2Pipeline
    monkeypatch.setattr(pipeline, "load_lora_weights", lambda self, repo, **options: loaded.append((repo, options)))
    monkeypatch.setattr(pipeline, "set_adapters", lambda self, *named, **by: weighted.append((*named, *by.values())))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.safetensors").write_bytes(b"1")
    adapters = [
        {"repo": "somebody/style", "revision": commit, "weight": 0.5},
        {"repo": str(tmp_path / "mine"), "file": "a.safetensors"},
    ]
    editor = tiny_editor(offline, "flux2", lora=adapters)
    outcome = must_be(Edited, edit_one(editor, ask()))
    assert loaded == [
        ("somebody/style", {"adapter_name": "lora0", "revision": commit}),
        (str(tmp_path / "mine"), {"adapter_name": "lora1", "weight_name": "a.safetensors"}),
    ]
    assert weighted == [(["lora0", "lora1"], [0.5, 1.0])]
    style, mine = outcome.effective["weights"]["others"]
    assert style == {"repo": "somebody/style", "revision": commit}
    assert (mine["repo"], mine["file"]) == ("mine", "a.safetensors")
    before = editor.spec.key
    (tmp_path / "mine" / "a.safetensors").write_bytes(b"2")
    assert tiny_editor(offline, "flux2", lora=adapters).spec.key != before
