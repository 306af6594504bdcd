"""A data set's own labels and the levels that an audit uses for them; kept as data in `taxonomies/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """What the labels of one data set are called, and what a sample takes of them by default."""

    title: str
    licence: str
    label_origin: str
    consent: str
    levels: Mapping[str, tuple[str, ...]]
    """Of each attribute, what is sampled unless told otherwise."""
    labels: Mapping[str, Mapping[str, str]]
    """Of each attribute, published label → level."""


@cache
def taxonomy(name: str) -> Taxonomy:
    """Read one of the taxonomies that ship with this version."""
    text = files("stillme.curation").joinpath("taxonomies", f"{name}.toml").read_text("utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    return Taxonomy(
        title=data["title"],
        licence=data["licence"],
        label_origin=data["label_origin"],
        consent=data["consent"],
        levels={attribute: tuple(levels) for attribute, levels in data["levels"].items()},
        labels=data["labels"],
    )
