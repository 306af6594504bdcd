"""Edits with tiny pipelines of the real classes, through the real loading code."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stillme.core.types import Edited, EditOutcome, Failed, Refused, Request
from stillme.editors.diffusion import editor as named
from stillme.editors.diffusion import loading
from stillme.editors.diffusion.editor import Diffusers, DiffusersEditor
from stillme.plugins.testing import check_plugin
from tests.editors.diffusion.conftest import SMALL, THIRD_PARTY, Ask, picture
from tests.records import must_be

pytestmark = THIRD_PARTY

Folders = dict[str, Path]

CLASSES = {
    "flux2": named.Flux2Dev,
    "klein": named.Flux2Klein,
    "qwen": named.QwenImageEdit2511,
    "longcat": Diffusers,
    "pix2pix": named.InstructPix2Pix,
    "kontext": named.Flux1Kontext,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "flux2": {"size": (SMALL, SMALL), "extra": {"text_encoder_out_layers": [1, 2, 3]}},
    "klein": {"size": (SMALL, SMALL), "extra": {"text_encoder_out_layers": [1, 2, 3]}},
    "qwen": {"size": (SMALL, SMALL)},
    "longcat": {},
    "pix2pix": {},
    "kontext": {"size": (SMALL, SMALL), "extra": {"_auto_resize": False}},
}


def values(folders: Folders, kind: str, **changes: Any) -> dict[str, Any]:
    common = {"repo": str(folders[kind]), "steps": 2, "dtype": "float32", "device": "cpu"}
    return {**common, **SETTINGS[kind], **changes}


def tiny_editor(folders: Folders, kind: str, **changes: Any) -> DiffusersEditor:
    editor_class = CLASSES[kind]
    return editor_class(editor_class.Parameters.model_validate(values(folders, kind, **changes)))


def rgb(outcome: EditOutcome) -> NDArray[np.int16]:
    return np.asarray(Image.open(io.BytesIO(outcome.image)), dtype=np.int16)


def edit_one(editor: DiffusersEditor, request: Request) -> EditOutcome:
    [outcome] = editor.edit([request])
    return outcome


@pytest.mark.parametrize("kind", ["flux2", "qwen", "pix2pix", "kontext"])
def test_a_diffusers_editor_conforms(offline: Folders, tmp_path: Path, kind: str) -> None:
    people = [picture(tmp_path / f"p{number}.png", seed=number) for number in range(2)]
    check_plugin(CLASSES[kind], people, values(offline, kind))


@pytest.mark.parametrize("kind", ["flux2", "klein", "kontext", "pix2pix"])
def test_results_with_and_without_batching_agree(offline: Folders, ask: Ask, kind: str) -> None:
    requests = [ask(f"Wear a {thing}.", seed=seed) for seed, thing in enumerate(["hat", "long red coat", "x"])]
    together = list(tiny_editor(offline, kind, batch=3).edit(requests))
    alone = list(tiny_editor(offline, kind, batch=1).edit(requests))
    for left, right in zip(together, alone, strict=True):
        assert np.abs(rgb(left) - rgb(right)).max() <= 1
    assert [outcome.effective["batch"] for outcome in together if isinstance(outcome, Edited)] == [3, 3, 3]
    assert np.abs(rgb(together[0]) - rgb(together[1])).max() > 8, "different prompts and seeds give different edits"


def test_only_prompts_of_one_portrait_share_a_call(offline: Folders, ask: Ask) -> None:
    requests = [ask("a"), ask("b"), ask("c", people=(1,)), ask("d", people=(1,)), ask("e", people=(1,))]
    outcomes = list(tiny_editor(offline, "flux2", batch=2).edit(requests))
    assert [outcome.effective["batch"] for outcome in outcomes if isinstance(outcome, Edited)] == [2, 2, 2, 2, 1]
    alone = edit_one(tiny_editor(offline, "flux2"), requests[3])
    assert np.abs(rgb(outcomes[3]) - rgb(alone)).max() <= 1


def test_qwen_never_batches(offline: Folders, ask: Ask) -> None:
    editor = tiny_editor(offline, "qwen", batch=4)
    assert editor.capabilities.batching == "none"
    outcomes = list(editor.edit([ask("a"), ask("b")]))
    assert [outcome.effective["batch"] for outcome in outcomes if isinstance(outcome, Edited)] == [1, 1]


@pytest.mark.parametrize("kind", list(CLASSES))
def test_the_seed_decides_the_edit(offline: Folders, ask: Ask, kind: str) -> None:
    editor = tiny_editor(offline, kind)
    first, again, other = (edit_one(editor, ask(seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(rgb(first), rgb(again))
    assert not np.array_equal(rgb(first), rgb(other))


def test_effective_parameters_are_recorded(offline: Folders, ask: Ask) -> None:
    outcome = must_be(Edited, edit_one(tiny_editor(offline, "flux2", size="source"), ask(side=100)))
    effective = outcome.effective
    assert effective["pipeline"] == "Flux2Pipeline"
    assert (effective["size"], effective["source_size"]) == ([96, 96], [100, 100])
    assert effective["steps"] == 2
    assert effective["guidance"] == {"cfg": False, "guidance_scale": 4.0}
    assert effective["weights"]["revision"].startswith("sha256:")
    assert set(effective["libraries"]) == {"torch", "diffusers", "transformers", "accelerate"}
    assert (effective["device"], effective["dtype"], effective["truncated"]) == ("cpu", "float32", False)
    assert "warnings" not in effective


def test_a_prompt_that_was_cut_off_is_marked(offline: Folders, ask: Ask) -> None:
    editor = tiny_editor(offline, "flux2", max_sequence_length=32)
    effective = [outcome.effective for outcome in editor.edit([ask("Add a hat."), ask("Add a hat. " * 8)])]
    assert [(told["truncated"], told["prompt_limit"]) for told in effective] == [(False, 32), (True, 32)]


def test_qwen_reads_a_prompt_of_any_length(offline: Folders, ask: Ask) -> None:
    editor = tiny_editor(offline, "qwen")
    long = "Add a hat. " * 200
    ends = [edit_one(editor, ask(long + end)) for end in ("red", "blue and very large")]
    assert not np.array_equal(rgb(ends[0]), rgb(ends[1]))


def test_true_cfg_is_really_on(offline: Folders, ask: Ask) -> None:
    on, off = (must_be(Edited, edit_one(tiny_editor(offline, "qwen", true_cfg_scale=cfg), ask())) for cfg in (4.0, 1.0))
    assert [edit.effective["guidance"]["cfg"] for edit in (on, off)] == [True, False]
    assert not np.array_equal(rgb(on), rgb(off))
    assert "warnings" not in {**on.effective, **off.effective}


@pytest.mark.parametrize("kind", ["flux2", "klein", "qwen"])
def test_a_second_portrait_is_a_reference(offline: Folders, ask: Ask, kind: str) -> None:
    editor = tiny_editor(offline, kind)
    one, two = edit_one(editor, ask(people=(0,))), edit_one(editor, ask(people=(0, 1)))
    assert rgb(one).shape == rgb(two).shape
    assert not np.array_equal(rgb(one), rgb(two))


def test_more_portraits_than_inputs_fail_before_anything_is_loaded(offline: Folders, ask: Ask, tmp_path: Path) -> None:
    editor = tiny_editor({"pix2pix": tmp_path / "nowhere"}, "pix2pix")
    outcome = edit_one(editor, ask(people=(0, 1)))
    assert outcome == Failed(error="instruct-pix2pix takes 1 portraits, not 2", retryable=False)


def breaking(editor: DiffusersEditor, error: Exception, *, when: int) -> list[int]:
    """Make the denoiser fail on batches of `when` or more, and note every batch size."""
    loaded: Any = editor._ready()
    real, sizes = loaded.pipe.transformer.forward, []

    def forward(*args: Any, **kwargs: Any) -> Any:
        sizes.append(len(kwargs["hidden_states"]))
        if sizes[-1] >= when:
            raise error
        return real(*args, **kwargs)

    loaded.pipe.transformer.forward = forward
    return sizes


def test_a_batch_that_does_not_fit_is_halved_and_its_size_is_not_tried_again(offline: Folders, ask: Ask) -> None:
    import torch

    editor = tiny_editor(offline, "flux2", batch=4, steps=1)
    sizes = breaking(editor, torch.OutOfMemoryError("CUDA out of memory."), when=3)
    outcomes = list(editor.edit([ask(text) for text in "abcdef"]))
    assert [type(outcome) for outcome in outcomes] == [Edited] * 6
    assert sizes == [4, 2, 2, 2]
    assert [type(outcome) for outcome in editor.edit([ask(text) for text in "ghij"])] == [Edited] * 4
    assert sizes[4:] == [2, 2], "the next call of the same run knows"


def test_a_batch_that_is_rejected_is_done_one_by_one_and_the_next_one_whole(offline: Folders, ask: Ask) -> None:
    editor = tiny_editor(offline, "flux2", batch=2, steps=1)
    sizes = breaking(editor, ValueError("no"), when=2)
    assert [type(outcome) for outcome in editor.edit([ask(text) for text in "abcd"])] == [Edited] * 4
    assert sizes == [2, 1, 1, 2, 1, 1]


def test_out_of_memory_is_always_the_same_failure_and_never_a_refusal(offline: Folders, ask: Ask) -> None:
    import torch

    editor = tiny_editor(offline, "flux2")
    numbers = iter(range(10))
    loaded: Any = editor._ready()

    def forward(**_: Any) -> Any:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {next(numbers)} GiB.")

    loaded.pipe.transformer.forward = forward
    first, second = (edit_one(editor, ask(text)) for text in "ab")
    assert first == second
    assert not first.retryable
    assert first.error == (
        'out of memory: not even one edit fits; write `quantisation = "bitsandbytes-4bit"` or `offload = "model"` or '
        "`vae_tiling = true`, or use the preset 'flux2-dev-80gb'"
    )


def test_what_a_pipeline_rejects_is_not_retried(offline: Folders, ask: Ask) -> None:
    outcome = must_be(Failed, edit_one(tiny_editor(offline, "flux2"), ask(side=40)))
    assert not outcome.retryable
    assert "too small" in outcome.error


def decoded(offline: Folders, ask: Ask, change: Callable[[Any], Any]) -> EditOutcome:
    """An edit whose decoded pixels are others."""
    editor = tiny_editor(offline, "flux2")
    loaded: Any = editor._ready()
    real = loaded.pipe.vae.decode
    loaded.pipe.vae.decode = lambda *args, **kwargs: (change(real(*args, **kwargs)[0]),)
    return edit_one(editor, ask())


def test_pixels_that_are_not_numbers_fail_instead_of_turning_black(offline: Folders, ask: Ask) -> None:
    assert decoded(offline, ask, lambda pixels: pixels * float("nan")) == Failed(
        error="100% of the pixels are not numbers, computed as float32; try another dtype", retryable=False
    )


def test_a_black_frame_is_kept_as_it_is(offline: Folders, ask: Ask) -> None:
    assert not rgb(decoded(offline, ask, lambda pixels: pixels * 0 - 1)).any()


def test_a_safety_checker_s_block_is_a_refusal(offline: Folders, ask: Ask) -> None:
    editor = tiny_editor(offline, "pix2pix")
    loaded: Any = editor._ready()
    loaded.pipe.safety_checker.concept_embeds_weights.data.fill_(-10)
    assert isinstance(edit_one(editor, ask()), Refused)


def test_weights_that_do_not_load_fail_every_request_and_are_tried_once(
    offline: Folders, ask: Ask, tmp_path: Path
) -> None:
    shutil.copytree(offline["flux2"], tmp_path / "broken")
    (tmp_path / "broken" / "transformer" / "config.json").unlink()
    editor = tiny_editor({"flux2": tmp_path / "broken"}, "flux2")
    outcomes = list(editor.edit([ask("a"), ask("b", people=(1,))]))
    assert outcomes[0] is outcomes[1]
    assert outcomes[0].fatal
    assert "cannot be loaded" in outcomes[0].error


def test_weights_of_another_pipeline_are_refused_before_they_are_read(
    offline: Folders, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    import diffusers

    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", None)
    editor = tiny_editor({"flux2": offline["qwen"]}, "flux2")
    outcome = must_be(Failed, edit_one(editor, ask()))
    assert outcome.fatal
    assert "is a QwenImageEditPlusPipeline, not a Flux2Pipeline" in outcome.error
    assert any("is a QwenImageEditPlusPipeline" in problem for problem in editor.problems([], []))


def test_a_device_that_torch_does_not_see_ends_the_run_in_one_sentence(offline: Folders, ask: Ask) -> None:
    outcome = must_be(Failed, edit_one(tiny_editor(offline, "flux2", device="cuda:1"), ask()))
    assert outcome.fatal
    assert "`device = 'cuda:1'`, and torch 2" in outcome.error
    assert "sees no such device" in outcome.error


def test_large_weights_never_run_on_a_cpu_unasked(offline: Folders, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(edit_one(tiny_editor(offline, "flux2", device="auto"), ask()), Edited), "small ones may"
    monkeypatch.setattr(loading, "_CPU_GB", 1e-4)
    outcome = must_be(Failed, edit_one(tiny_editor(offline, "flux2", device="auto"), ask()))
    assert outcome.fatal
    assert 'write `device = "cpu"` to edit there all the same' in outcome.error
    assert isinstance(edit_one(tiny_editor(offline, "flux2", device="cpu"), ask()), Edited)


@pytest.mark.parametrize(
    "option",
    [
        {"vae_tiling": True, "vae_slicing": True},
        {"attention": "_native_math"},
        {"quantisation": "layerwise-float8"},
        {"dtype": "bfloat16"},
    ],
)
def test_options_that_can_change_pixels_run_and_change_the_key(
    offline: Folders, ask: Ask, option: dict[str, Any]
) -> None:
    plain, changed = tiny_editor(offline, "flux2", steps=4), tiny_editor(offline, "flux2", steps=4, **option)
    assert list(changed.problems(ask().portraits, [ask().prompt])) == []
    assert plain.spec.key != changed.spec.key
    assert rgb(edit_one(changed, ask())).shape == (SMALL, SMALL, 3)


def test_a_declared_pipeline_edits_as_declared(offline: Folders, ask: Ask) -> None:
    declared = {"arguments": ["num_inference_steps", "guidance_scale"], "guidance": ["guidance_scale"]}
    editor = Diffusers(Diffusers.Parameters.model_validate(values(offline, "pix2pix", capabilities=declared)))
    assert list(editor.problems(ask().portraits, [ask().prompt])) == []
    assert editor.capabilities.batching == "none"
    assert isinstance(edit_one(editor, ask()), Edited)


def test_closing_frees_the_weights_and_the_next_edit_loads_them_again(offline: Folders, ask: Ask) -> None:
    editor = tiny_editor(offline, "flux2")
    first = edit_one(editor, ask())
    editor.close()
    assert editor._loaded is None
    assert np.array_equal(rgb(first), rgb(edit_one(editor, ask())))
