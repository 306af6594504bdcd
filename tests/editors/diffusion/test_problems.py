"""What a diffusers editor says before the first edit, and what names its results."""

from __future__ import annotations

import inspect
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stillme.core.prompts import diagnostic
from stillme.editors.diffusion import editor as named
from stillme.editors.diffusion.editor import Diffusers, DiffusersEditor
from stillme.editors.diffusion.step1x import Step1X
from stillme.editors.diffusion.traits import pipelines, presets
from tests.editors.diffusion.conftest import THIRD_PARTY, asked, picture

pytestmark = THIRD_PARTY

PRESETS = {
    kind.__name__: kind
    for kind in vars(named).values()
    if inspect.isclass(kind) and issubclass(kind, DiffusersEditor) and kind not in (Diffusers, DiffusersEditor)
}


def built(editor_class: type[Any], **values: Any) -> Any:
    return editor_class(editor_class.Parameters.model_validate(values))


def problems_of(editor: DiffusersEditor | Step1X, tmp_path: Path, text: str = "Add a hat.", **shape: int) -> list[str]:
    portrait = picture(tmp_path / "p.png", **({"width": 64, "height": 64} | shape))
    return list(editor.problems([portrait], [asked(text)]))


def test_every_preset_has_a_class() -> None:
    assert {editor.spec.use for editor in map(built, PRESETS.values())} == set(presets())
    assert all(pickle.loads(pickle.dumps(preset)) is preset for preset in PRESETS.values()), "other processes need them"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_objects_to_nothing_of_its_own(name: str, tmp_path: Path) -> None:
    problems = list(built(PRESETS[name]).problems([picture(tmp_path / "p.png")], diagnostic()))
    assert [sentence for sentence in problems if "run `pip install bitsandbytes`" not in sentence] == []


def test_the_paper_s_settings_are_those_of_its_table() -> None:
    flux, qwen, step = (
        built(editor_class).spec.parameters for editor_class in (named.Flux2Dev, named.QwenImageEdit2511, Step1X)
    )
    assert (flux["steps"], flux["guidance_scale"], flux["dtype"], flux["size"]) == (50, 4.0, "bfloat16", [1024, 1024])
    assert (qwen["steps"], qwen["true_cfg_scale"], qwen["guidance_scale"]) == (40, 4.0, 1.0)
    assert (qwen["negative_prompt"], qwen["dtype"], qwen["size"]) == (" ", "bfloat16", [1024, 1024])
    assert (step["steps"], step["true_cfg_scale"], step["dtype"], step["size_level"]) == (28, 6.0, "bfloat16", 1024)
    seeds = [presets()["flux2-dev"].seed, presets()["qwen-image-edit-2511"].seed, Step1X.default_seed]
    assert seeds == [42, 0, 42]


@pytest.mark.parametrize("name", list(pipelines()))
def test_the_traits_agree_with_the_installed_signatures(installed: None, name: str) -> None:
    import diffusers

    signature = inspect.signature(getattr(diffusers, name).__call__).parameters
    traits = pipelines()[name]
    extras = [traits.area_argument] if traits.area_argument else []
    for argument in ("image", "prompt", "generator", "output_type", *traits.arguments, *extras):
        assert argument in signature
    for argument in ("width", "height"):
        assert (argument in signature) == (traits.size == "any")
    listed = set(traits.arguments) | set(traits.ignored)
    scales = ("guidance_scale", "true_cfg_scale", "image_guidance_scale")
    for argument in (*scales, "negative_prompt", "max_sequence_length"):
        assert (argument in signature) == (argument in listed), argument


@pytest.mark.parametrize(
    ("editor_class", "values", "expected"),
    [
        (named.QwenImageEdit2511, {"guidance_scale": 4.0}, "`guidance_scale = 4.0` would be ignored"),
        (named.QwenImageEdit2511, {"max_sequence_length": 900}, "never cuts a prompt"),
        (named.QwenImageEdit2511, {"negative_prompt": None}, "would be ignored without a negative prompt"),
        (
            named.QwenImageEdit2511,
            {"true_cfg_scale": 1.0, "negative_prompt": "blur"},
            "`negative_prompt` would be ignored while `true_cfg_scale` is not above 1",
        ),
        (named.Flux2Klein, {"guidance_scale": 4.0}, "step-distilled"),
        (named.Flux2Dev, {"true_cfg_scale": 4.0}, "is not a setting of Flux2Pipeline, which takes steps"),
        (named.Flux2Dev, {"negative_prompt": "blur"}, "`negative_prompt` is not a setting of Flux2Pipeline"),
        (named.Flux2Dev, {"size": (1000, 1024)}, "would become [992, 1024]"),
        (named.Flux2Dev, {"device": "cpu", "offload": "model"}, "needs an accelerator"),
        (named.Flux2Dev, {"device": "cpu", "quantisation": "bitsandbytes-4bit"}, "needs a GPU"),
        (named.Flux2Dev, {"quantised": ["vae"]}, "ignored without `quantisation`"),
        (named.Flux2Dev, {"extra": {"prompt": "x"}}, "`extra.prompt` cannot be set"),
        (named.InstructPix2Pix, {"size": (512, 512)}, "`size` cannot be chosen"),
        (named.InstructPix2Pix, {"image_guidance_scale": 0.5}, "turns `guidance_scale` off"),
        (
            Diffusers,
            {"repo": "a/b", "pipeline": "LongCatImageEditPipeline", "true_cfg_scale": 2.0},
            "is not a setting of LongCatImageEditPipeline",
        ),
        (named.Flux2Dev, {"repo": "./nowhere"}, "is the folder nowhere, which does not exist"),
        (named.Flux2Dev, {"components": {"vae": {"repo": "./nowhere"}}}, "`components.vae` is the folder"),
        (named.Flux2Dev, {"lora": [{"repo": "a/b/c"}]}, "`lora[0] = 'a/b/c'` is neither a folder nor a repository"),
        (named.Flux2Dev, {"devices": ["cuda:0", "cpu"]}, "must be of one kind"),
        (named.Flux2Dev, {"device": "cuda", "devices": ["cpu", "cpu"]}, "is not the kind of `devices`"),
        (named.Flux2Dev, {"devices": "all"}, "nvidia-smi shows no GPU here"),
        (named.Flux2Dev, {"repo": "weights/flux2/v1"}, "neither a folder nor a repository"),
        (Diffusers, {"repo": "somebody/something"}, "`pipeline` is missing"),
        (Diffusers, {"repo": "a/b", "pipeline": "NewPipeline"}, "does not know how to call NewPipeline"),
        (Step1X, {}, "`python` is missing"),
        (Step1X, {"python": "/nowhere/python"}, "is not an executable"),
        (Step1X, {"python": "python3", "region_e": True, "steps": 20}, "rejected by RegionE"),
    ],
)
def test_a_setting_that_would_not_act_is_named(editor_class: Any, values: Any, expected: str, tmp_path: Path) -> None:
    problems = problems_of(built(editor_class, **values), tmp_path)
    assert len([sentence for sentence in problems if expected in sentence]) == 1, problems


def test_a_diffusers_that_does_not_import_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("stillme.editors.diffusion.editor.import_module", broken)
    monkeypatch.setattr("stillme.editors.diffusion.editor.find_spec", lambda name: object())
    [sentence] = problems_of(built(named.Flux2Dev, extra={"sigmas": [1.0]}), tmp_path)
    assert "diffusers cannot import Flux2Pipeline (operator torchvision::nms does not exist)" in sentence


def test_a_portrait_that_the_pipeline_rejects_is_named(tmp_path: Path) -> None:
    [small] = problems_of(built(named.Flux2Dev), tmp_path, width=60)
    assert "'p' has 60×64 pixels" in small
    [long] = problems_of(built(named.Flux2Dev), tmp_path, width=64 * 9)
    assert "crop it" in long


def test_arguments_that_the_installed_pipeline_lacks_are_named(installed: None, tmp_path: Path) -> None:
    [extra] = problems_of(built(named.Flux2Dev, extra={"styl": 1}), tmp_path)
    assert "`extra.styl` is not an argument of Flux2Pipeline" in extra
    declared = {"arguments": ["num_inference_steps", "strenght"]}
    editor = built(Diffusers, repo="a/b", pipeline="FluxKontextPipeline", capabilities=declared)
    assert any("'strenght'" in sentence for sentence in problems_of(editor, tmp_path))


def test_an_attention_backend_that_does_not_exist_is_named(installed: None, tmp_path: Path) -> None:
    [sentence] = problems_of(built(named.Flux2Dev, attention="flahs"), tmp_path)
    assert "`attention = 'flahs'` is unknown to diffusers" in sentence


@pytest.mark.parametrize(
    ("kind", "editor_class", "limit"),
    [
        ("flux2", named.Flux2Dev, 512),
        ("klein", named.Flux2Klein, 512),
        ("kontext", named.Flux1Kontext, 512),
        ("longcat", Diffusers, 512),
        ("pix2pix", named.InstructPix2Pix, 77),
    ],
)
def test_a_prompt_that_would_be_cut_off_is_named(
    offline: dict[str, Path], tmp_path: Path, kind: str, editor_class: Any, limit: int
) -> None:
    editor = built(editor_class, repo=str(offline[kind]))
    [sentence] = problems_of(editor, tmp_path, "x" * (limit + 1))
    assert f"and {editor.spec.use} reads {limit}" in sentence
    assert problems_of(editor, tmp_path, "x" * (limit // 2)) == []


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"device": "cuda:1", "offload": "model"}, True),
        ({"device": "cpu"}, False),
        ({"steps": 49}, False),
        ({"batch": 2}, False),
        ({"quantisation": "bitsandbytes-4bit"}, False),
        ({"compile": True}, False),
        ({"revision": "x"}, False),
        ({"components": {"transformer": {"repo": "owner/FLUX.2-dev-gguf", "file": "flux2-dev-Q4_K_M.gguf"}}}, False),
        ({"lora": [{"repo": "a/b", "weight": 0.5}]}, False),
    ],
)
def test_what_can_change_a_pixel_is_part_of_the_key_and_nothing_else(change: dict[str, Any], same: bool) -> None:
    plain = built(named.Flux2Dev, device="cuda").spec.key
    assert (built(named.Flux2Dev, **{"device": "cuda", **change}).spec.key == plain) == same


def test_many_devices_are_no_part_of_the_key() -> None:
    plain = built(named.Flux2Dev, device="cpu")
    many = built(named.Flux2Dev, device="cpu", devices=["cpu", "cpu"])
    assert many.spec.key == plain.spec.key
    assert (plain.capabilities.concurrency, many.capabilities.concurrency) == (1, 2)


def test_every_smaller_preset_exists_and_needs_less() -> None:
    for preset in presets().values():
        if preset.smaller:
            assert presets()[preset.smaller].memory_gb <= preset.memory_gb


def test_a_folder_counts_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    here = tmp_path / "a" / "weights"
    (here / "transformer").mkdir(parents=True)
    (here / "model_index.json").write_text('{"_class_name": "Flux2Pipeline"}')
    (here / "transformer" / "model.safetensors").write_bytes(b"0" * 300_000)
    there = shutil.copytree(here, tmp_path / "b" / "weights")
    first = built(named.Flux2Dev, repo=str(here)).spec.key
    assert built(named.Flux2Dev, repo=str(there)).spec.key == first


def test_the_recipe_for_step1x_names_every_package_that_the_page_names():
    problems = Step1X(Step1X.Parameters.model_validate({})).problems([], [])
    (sentence,) = (problem for problem in problems if "create an environment" in problem)
    page = (Path(__file__).parents[3] / "docs" / "editors-diffusers.md").read_text()
    documented = {word for line in re.findall(r"step1x/bin/pip install (.*)", page) for word in line.split()}
    (recipe,) = re.findall(r"`pip install ([^`]*)`", sentence)
    assert set(recipe.split()) == documented
    assert {"torch", "torchvision", "qwen-vl-utils", "pillow"} < documented
