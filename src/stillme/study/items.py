"""The drawn items of a study, as in items.json: what raters see, and what only the researcher may know."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from pydantic import TypeAdapter, ValidationError

from stillme.core import rubric
from stillme.core.errors import StillmeError
from stillme.core.files import write_whole
from stillme.core.types import Json
from stillme.study.keys import write_private

FILE = "items.json"
EXAMPLE = "example"
"""The id of the training item that the guide shows."""

Kind = Literal["real", "repeat", "gold", "attention", "training"]
Expected = Mapping[str, tuple[int, int]]
"""The lowest and highest right answer to each question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One picture to be rated."""

    file: str
    """Its blinded copy in `pictures/`."""
    edit: str = ""
    """The request's key in the run; empty for pictures made for a check."""
    sha256: str = ""
    """The edited picture in the run."""
    strata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Editor and arm. Never shown."""
    expected: Expected = field(default_factory=dict[str, tuple[int, int]])
    """Empty where no right answer is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One source with one or two outputs, or two people with one scene."""

    id: str
    kind: Kind
    prompt: str
    """The instruction as raters read it: the prompt itself, whatever the arm added."""
    questions: tuple[str, ...]
    source: str
    """The source's blinded copy in `pictures/`."""
    outputs: tuple[Output, ...]
    second: str = ""
    """The second person's blinded portrait in `pictures/`; empty where there is one."""
    strata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Portrait, prompt id and groups. Never shown."""
    repeats: str = ""
    """The item that this one shows again."""
    batch: int = -1
    """Which task; -1 for training, which all raters see."""
    chance: float | None = None
    """With which it was drawn; None where items were chosen by their outcome."""

    @property
    def files(self) -> tuple[str, ...]:
        """Its pictures: the people in the order of the request, then the outputs."""
        return (self.source, *filter(None, [self.second]), *(output.file for output in self.outputs))

    @property
    def has_sides(self) -> bool:
        """Whether it shows two outputs, or two people, that may change places."""
        return len(self.outputs) == 2 or bool(self.second)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Everything that was drawn, and how: items.json."""

    study: str
    """A random id."""
    run: str
    """The run folder at the time of drawing."""
    audit: str
    """The configuration hash of the run."""
    design: Mapping[str, Json]
    """How it was drawn: comparison, seed, what came first."""
    items: tuple[Item, ...]

    @property
    def batches(self) -> int:
        """How many tasks there are."""
        return 1 + max((item.batch for item in self.items), default=-1)

    @cached_property
    def by_id(self) -> Mapping[str, Item]:
        """Every item by its id."""
        return {item.id: item for item in self.items}

    def write(self, folder: Path) -> None:
        """Write items.json, whole or not at all; only its owner may read it."""
        write_private(folder / FILE, json.dumps(asdict(self), indent=1, ensure_ascii=False))


def read(folder: Path) -> Drawn:
    """The items of the study in `folder`."""
    file = folder / FILE
    if not file.is_file():
        raise StillmeError(f"{folder} has no {FILE}. `stillme study new RUN` draws the items.")
    try:
        return TypeAdapter(Drawn).validate_json(file.read_bytes())
    except ValidationError as error:
        why = f"{error.error_count()} mistakes, the first: {error.errors()[0]['msg']}"
        raise StillmeError(f"{file} is damaged ({why}). Draw the study again into another folder.") from None


ROLE_AXIS = "role_target"
FIRST_PERSON, SECOND_PERSON, NEITHER_PERSON = 1, 2, 3
CHOICES = ("Person A", "Person B", "Neither of the two")


def turned_back(value: int) -> int:
    """An answer when the portraits change places."""
    return {FIRST_PERSON: SECOND_PERSON, SECOND_PERSON: FIRST_PERSON}.get(value, value)


def question_about(target: str) -> str:
    """What raters read above the pictures."""
    return f"Who of the two is drawn as the {target}?"


def anchors(axis: str) -> tuple[str, ...]:
    """What 1, 2, … mean to raters."""
    return CHOICES if axis == ROLE_AXIS else rubric.load().axes[axis].scale


FOLDER = "pictures"
SIDE = 768
QUALITY = 92
_BLOCK = 4096


class BlindedPictures:
    """A folder of blinded pictures. Call `pad` after the last one, so that all files are equally long."""

    def __init__(self, study: Path, side: int = SIDE) -> None:
        self.folder = study / FOLDER
        self._side = side

    def add(self, rgb: NDArray[np.uint8]) -> str:
        """Keep a blinded copy and return its file name."""
        data = blind(rgb, self._side)
        name = hashlib.sha256(data).hexdigest()[:32] + ".jpg"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / name).exists():
            write_whole(self.folder / name, data)
        return name

    def pad(self) -> int:
        """Pad every file to the length of the longest: a file's size would tell how much is in the picture."""
        files = [path for path in self.folder.iterdir() if path.suffix == ".jpg"]
        longest = max(path.stat().st_size for path in files)
        length = -(-longest // _BLOCK) * _BLOCK
        for path in files:
            # Decoders stop at the end-of-image marker and ignore what follows.
            with path.open("ab") as stream:
                stream.truncate(length)
        return length


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFormat:
    """What all pictures of a study have in common."""

    side: int
    """Pixels."""
    length: int
    """Bytes."""


@cache
def format_of(folder: Path) -> PictureFormat:
    """The format of the blinded pictures in `folder`, which `BlindedPictures` made alike."""
    file = next(path for path in folder.iterdir() if path.suffix == ".jpg")
    with Image.open(file) as picture:
        return PictureFormat(side=picture.width, length=file.stat().st_size)


def blind(rgb: NDArray[np.uint8], side: int) -> bytes:
    """A square JPEG without chroma subsampling, the picture centred on neutral grey."""
    grey = (128, 128, 128)
    square = ImageOps.pad(Image.fromarray(rgb), (side, side), Image.Resampling.LANCZOS, color=grey)
    buffer = io.BytesIO()
    square.save(buffer, "JPEG", quality=QUALITY, subsampling=0)
    return buffer.getvalue()
