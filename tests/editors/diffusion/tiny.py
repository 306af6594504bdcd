"""Pipelines of the real classes with a few thousand random weights, built from config and saved as folders.

Kept apart from the tests because the benchmark uses them too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def allow_torchvision() -> None:
    """Let a CUDA build of torchvision import beside a CPU build of torch.

    Qwen's and Pixtral's image processors import torchvision. Where its compiled operators cannot be loaded, it fails
    only because it registers fake versions of two of them, which somebody must have defined first.
    """
    import torch

    spec = find_spec("torchvision")
    if spec is None or spec.origin is None or _KEPT:
        return
    try:
        for compiled in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(compiled)
            return
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[Any] = []
"""A library's definitions vanish with it."""


def _byte_tokens(*specials: str) -> dict[str, int]:
    """A vocabulary that needs no training: the specials and the 256 bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    return {token: number for number, token in enumerate([*specials, *sorted(ByteLevel.alphabet())])}


def _fast_tokenizer(specials: tuple[str, ...], template: str | None = None) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(vocab=_byte_tokens(*specials), merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=specials[0], eos_token=specials[-1], padding_side="left"
    )
    tokenizer.chat_template = template
    return tokenizer


def _flux2_parts(**config: Any) -> tuple[Any, Any]:
    """The denoiser and autoencoder that the FLUX.2 family shares."""
    from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel

    transformer = Flux2Transformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=48, timestep_guidance_channels=16, axes_dims_rope=(4, 4, 4, 4), **config,
    )  # fmt: skip
    vae = AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, latent_channels=4, norm_num_groups=4, sample_size=64,
    )  # fmt: skip
    return transformer, vae


def _saved(make: Callable[[], Any]) -> Callable[[Path], Path]:
    """A function that saves the pipeline as a folder, always with the same weights."""

    @wraps(make)
    def save(folder: Path) -> Path:
        import torch

        torch.manual_seed(0)
        make().save_pretrained(folder)
        return folder

    return save


@_saved
def flux2() -> Any:
    """A `Flux2Pipeline`."""
    from diffusers import FlowMatchEulerDiscreteScheduler, Flux2Pipeline
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    tokenizer = _fast_tokenizer(
        ("<pad>", "<s>", "[INST]", "[/INST]", "</s>"),
        "{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'][0]['text'] }}[/INST]"
        "{% endif %}{% endfor %}",
    )
    text = {
        "model_type": "mistral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 3, "head_dim": 8,
        "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer),
    }  # fmt: skip
    vision = {
        "model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8,
        "num_attention_heads": 2, "image_size": 16, "patch_size": 8,
    }  # fmt: skip
    config = Mistral3Config(text_config=text, vision_config=vision, image_token_index=2)
    transformer, vae = _flux2_parts(guidance_embeds=True)
    return Flux2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True), vae=vae, tokenizer=tokenizer,
        text_encoder=Mistral3ForConditionalGeneration(config), transformer=transformer,
    )  # fmt: skip


@_saved
def klein() -> Any:
    """A step-distilled `Flux2KleinPipeline`."""
    from diffusers import FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = _fast_tokenizer(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}",
    )
    config = Qwen3Config(
        hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2,
        head_dim=8, vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    transformer, vae = _flux2_parts(guidance_embeds=False)
    return Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True), vae=vae, tokenizer=tokenizer,
        text_encoder=Qwen3ForCausalLM(config), transformer=transformer, is_distilled=True,
    )  # fmt: skip


def _qwen_reader() -> dict[str, Any]:
    """The text side that Qwen's and LongCat's pipelines share."""
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2Tokenizer,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    specials = (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
        "<|video_pad|>",
    )  # fmt: skip
    vocab = _byte_tokens(*specials)
    tokenizer = Qwen2Tokenizer(vocab=vocab, merges=[], extra_special_tokens=list(specials[1:]))
    text = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]},
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
        "fullatt_block_indexes": [0],
    }  # fmt: skip
    config = Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, image_token_id=vocab["<|image_pad|>"],
        video_token_id=vocab["<|video_pad|>"], vision_start_token_id=vocab["<|vision_start|>"],
        vision_end_token_id=vocab["<|vision_end|>"],
    )  # fmt: skip
    small = {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 4}
    processor = Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=small), tokenizer=tokenizer, video_processor=Qwen2VLVideoProcessor()
    )
    return {
        "tokenizer": tokenizer, "processor": processor, "text_encoder": Qwen2_5_VLForConditionalGeneration(config),
    }  # fmt: skip


@_saved
def qwen() -> Any:
    """A `QwenImageEditPlusPipeline`."""
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImageEditPlusPipeline,
        QwenImageTransformer2DModel,
    )

    transformer = QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    vae = AutoencoderKLQwenImage(
        base_dim=8, z_dim=4, dim_mult=[1, 2, 2, 2], num_res_blocks=1, temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    return QwenImageEditPlusPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(), vae=vae, transformer=transformer, **_qwen_reader()
    )


@_saved
def longcat() -> Any:
    """A `LongCatImageEditPipeline`."""
    from diffusers import FlowMatchEulerDiscreteScheduler, LongCatImageEditPipeline, LongCatImageTransformer2DModel

    transformer = LongCatImageTransformer2DModel(
        in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=[4, 4, 8],
    )  # fmt: skip
    reader = _qwen_reader()
    return LongCatImageEditPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(), vae=_flux_vae(latent_channels=16), transformer=transformer,
        tokenizer=reader["tokenizer"], text_processor=reader["processor"], text_encoder=reader["text_encoder"],
    )  # fmt: skip


def _flux_vae(**config: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8), norm_num_groups=4, shift_factor=0.0, use_quant_conv=False,
        use_post_quant_conv=False, **config,
    )  # fmt: skip


@_saved
def pix2pix() -> Any:
    """A `StableDiffusionInstructPix2PixPipeline` with its safety checker."""
    from diffusers import (
        AutoencoderKL,
        EulerAncestralDiscreteScheduler,
        StableDiffusionInstructPix2PixPipeline,
        UNet2DConditionModel,
    )
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPTextConfig, CLIPTextModel

    tokenizer = _fast_tokenizer(("<pad>", "<|endoftext|>"))
    tokenizer.model_max_length = 77
    text = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": len(tokenizer), "projection_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32,
        "patch_size": 16, "projection_dim": 16,
    }  # fmt: skip
    unet = UNet2DConditionModel(
        sample_size=8, in_channels=8, out_channels=4, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=4,
    )  # fmt: skip
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8), latent_channels=4, norm_num_groups=4,
    )  # fmt: skip
    return StableDiffusionInstructPix2PixPipeline(
        vae=vae, text_encoder=CLIPTextModel(CLIPTextConfig(**text)), tokenizer=tokenizer, unet=unet,
        scheduler=EulerAncestralDiscreteScheduler(), feature_extractor=CLIPImageProcessor(size=32, crop_size=32),
        safety_checker=StableDiffusionSafetyChecker(CLIPConfig(text_config=text, vision_config=vision)),
    )  # fmt: skip


@_saved
def kontext() -> Any:
    """A `FluxKontextPipeline`."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxKontextPipeline, FluxTransformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    tokenizer, tokenizer_2 = (_fast_tokenizer(("<pad>", "<|endoftext|>")) for _ in range(2))
    tokenizer.model_max_length = 77
    clip = CLIPTextConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=len(tokenizer),
        pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    t5 = T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=len(tokenizer_2))
    transformer = FluxTransformer2DModel(
        in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=True,
    )  # fmt: skip
    return FluxKontextPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(), vae=_flux_vae(latent_channels=4), tokenizer=tokenizer,
        text_encoder=CLIPTextModel(clip), text_encoder_2=T5EncoderModel(t5), tokenizer_2=tokenizer_2,
        transformer=transformer,
    )  # fmt: skip
