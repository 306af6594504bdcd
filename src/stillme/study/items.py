"""The drawn items of a study, as in items.json: what raters see, and what only the researcher may know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from stillme.errors import StillmeError
from stillme.files import write_whole
from stillme.types import Json

FILE = "items.json"
EXAMPLE = "example"
"""The id of the training item that the guide shows."""

Kind = Literal["real", "repeat", "gold", "attention", "training"]
Expected = Mapping[str, tuple[int, int]]
"""The lowest and highest right answer to each question."""


def _empty() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One picture to be rated."""

    file: str
    """Its blinded copy in `pictures/`."""
    edit: str = ""
    """The request's key in the run; empty for pictures made for a check."""
    sha256: str = ""
    """The edited picture in the run."""
    strata: Mapping[str, str] = field(default_factory=_empty)
    """Editor and arm. Never shown."""
    expected: Expected | None = None


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
    strata: Mapping[str, str] = field(default_factory=_empty)
    """Portrait, prompt id and groups. Never shown."""
    repeats: str = ""
    """The item that this one shows again."""
    batch: int = -1
    """Which task; -1 for training, which everybody sees."""
    chance: float | None = None
    """With which it was drawn; None where items were drawn evenly, or first things first."""

    def placed(self, batch: int) -> Item:
        """The same item in a batch."""
        return replace(self, batch=batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Everything that was drawn, and how."""

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

    def write(self, folder: Path) -> None:
        """Write items.json, whole or not at all."""
        write_whole(folder / FILE, json.dumps(asdict(self), indent=1, ensure_ascii=False))


def read(folder: Path) -> Drawn:
    """The items of the study in `folder`."""
    file = folder / FILE
    if not file.is_file():
        raise StillmeError(f"{folder} has no {FILE}. `stillme study new RUN` draws the items.")
    try:
        data = json.loads(file.read_text("utf-8"))
        items = tuple(_item(entry) for entry in data.pop("items"))
        return Drawn(items=items, **data)
    except (ValueError, KeyError, TypeError) as error:
        raise StillmeError(f"{file} is damaged ({error}). Draw the study again into another folder.") from None


def _item(entry: dict[str, Json]) -> Item:
    outputs: Sequence[dict[str, Json]] = entry.pop("outputs")
    questions = tuple(entry.pop("questions"))
    return Item(outputs=tuple(_output(output) for output in outputs), questions=questions, **entry)


def _output(entry: dict[str, Json]) -> Output:
    expected = entry.pop("expected")
    ranges = {name: (int(low), int(high)) for name, (low, high) in expected.items()} if expected else None
    return Output(expected=ranges, **entry)
