# SPDX-License-Identifier: GPL-3.0-or-later
"""Render one portrait: parameters in; picture, parameters and measurements out."""

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .colour import linear_to_srgb
from .light import paint_wall
from .measure import measure_picture
from .parameters import GENERATOR_VERSION, Parameters

_WEBP_QUALITY = 94


@dataclass(frozen=True)
class Rendered:
    """What Cycles made: linear light with coverage, before exposure and background."""

    rgba: np.ndarray
    patches: tuple[dict[str, Any], ...]


def render_person(parameters: Parameters, threads: int) -> Rendered:
    """Run Cycles. Slow; everything after it is arithmetic on the result."""
    from .scene import build_scene, use_coverage_pass

    patches = build_scene(parameters, threads)
    light = _run_cycles(parameters)
    use_coverage_pass()
    coverage = _run_cycles(parameters)
    rgba = np.concatenate([light[..., :3], np.clip(coverage[..., :1], 0, 1)], -1)
    # Half precision is far finer than the picture's 8 bits, and makes a kept render equal a fresh one.
    return Rendered(rgba.astype(np.float16), tuple(asdict(patch) for patch in patches))


def render_or_recall(parameters: Parameters, threads: int, kept: Path | None) -> Rendered:
    """Render, or take the render from the folder where earlier ones were kept."""
    if kept is None:
        return render_person(parameters, threads)
    path = kept / f"{parameters.render_digest()}.npz"
    if path.exists():
        with np.load(path) as data:
            return Rendered(data["rgba"], tuple(json.loads(str(data["patches"]))))
    rendered = render_person(parameters, threads)
    kept.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    np.savez_compressed(partial, rgba=rendered.rgba, patches=json.dumps(rendered.patches))
    partial.replace(path)
    return rendered


def _run_cycles(parameters: Parameters) -> np.ndarray:
    """Render the current scene; linear RGBA, row 0 at the top."""
    import bpy

    size = parameters.quality.size
    pixels = np.empty(size * size * 4, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "portrait.exr")
        bpy.context.scene.render.filepath = path
        bpy.ops.render.render(write_still=True)
        image = bpy.data.images.load(path)
        image.colorspace_settings.name = "Non-Color"
        image.pixels.foreach_get(pixels)
        bpy.data.images.remove(image)
    return pixels.reshape(size, size, 4)[::-1].copy()


def develop(rendered: Rendered, parameters: Parameters) -> np.ndarray:
    """Put the person before the wall, expose, and encode as 8-bit sRGB."""
    setting = parameters.setting
    rgba = rendered.rgba.astype(np.float64)
    colour, coverage = rgba[..., :3], rgba[..., 3:]
    wall = paint_wall(setting.background, colour.shape[0])
    linear = (colour + wall * (1 - coverage)) * np.array(setting.light_tint) * 2.0**setting.exposure_ev
    return (np.clip(linear_to_srgb(linear), 0, 1) * 255 + 0.5).astype(np.uint8)


def _save(pixels: np.ndarray, path: Path) -> None:
    picture = Image.fromarray(pixels)
    if path.suffix == ".webp":
        picture.save(path, quality=_WEBP_QUALITY, method=6)
    else:
        picture.save(path)


def is_current(path: Path, parameters: Parameters) -> bool:
    """Whether this picture was already rendered from the very same parameters."""
    record = path.with_suffix(".json")
    if not (path.exists() and record.exists()):
        return False
    return json.loads(record.read_text()).get("digest") == parameters.digest()


def write_portrait(path: Path, parameters: Parameters, rendered: Rendered) -> dict[str, Any]:
    """Develop and save one picture with its record beside it; the record is written last."""
    pixels = develop(rendered, parameters)
    _save(pixels, path)
    record = {
        "file": path.name,
        "digest": parameters.digest(),
        "generator_version": GENERATOR_VERSION,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "pixels_sha256": hashlib.sha256(pixels.tobytes()).hexdigest(),
        "parameters": parameters.as_dict(),
        "measured": measure_picture(pixels, rendered.rgba[..., 3], rendered.patches),
        "patches": list(rendered.patches),
    }
    partial = path.with_suffix(".json.part")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(path.with_suffix(".json"))
    return record


def render_portrait(path: Path, parameters: Parameters, threads: int) -> dict[str, Any]:
    """Render and save, unless it is there already."""
    if is_current(path, parameters):
        return json.loads(path.with_suffix(".json").read_text())
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_portrait(path, parameters, render_person(parameters, threads))
