"""Whether audit.toml says what the recorded design resolved it to."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from typing import cast

from stillme.audit.load import FILE
from stillme.design import HOW_NOT_WHAT
from stillme.evidence.differences import Difference
from stillme.types import Json


def audit_file_differences(text: str, resolved: Mapping[str, Json]) -> Iterator[Difference]:
    """Every key that audit.toml sets and that was resolved to something else.

    Sections that change no row may differ, and so may parameters that are not part of a plugin's specification.
    """
    try:
        settings = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        yield Difference(file=FILE, what=f"is not TOML: {error}")
        return
    for name, value in settings.items():
        if name in HOW_NOT_WHAT or (name == "mitigation" and name not in resolved):
            continue
        if name == "mitigation":
            value = _mitigation(value)
        yield from _compare(name, value, resolved.get(name))


def _mitigation(section: Json) -> Json:
    """An extractor's name is short for its table."""
    extractors = section.get("extractors")
    if not isinstance(extractors, list):
        return section
    entries = cast("list[Json]", extractors)
    return section | {"extractors": [{"use": entry} if isinstance(entry, str) else entry for entry in entries]}


def _compare(path: str, setting: Json, resolved: Json) -> Iterator[Difference]:
    if isinstance(setting, dict) and isinstance(resolved, dict):
        yield from _compare_tables(path, cast("dict[str, Json]", setting), cast("dict[str, Json]", resolved))
    elif isinstance(setting, list) and isinstance(resolved, list):
        yield from _compare_lists(path, cast("list[Json]", setting), cast("list[Json]", resolved))
    elif setting != resolved:
        yield Difference(
            file=FILE, column=path, what="is not what was recorded", expected=f"{resolved}", found=f"{setting}"
        )


def _compare_tables(path: str, settings: dict[str, Json], resolved: dict[str, Json]) -> Iterator[Difference]:
    for name, value in settings.items():
        is_resolved = name in resolved if path.endswith(".parameters") else name not in HOW_NOT_WHAT
        if is_resolved:
            yield from _compare(f"{path}.{name}", value, resolved.get(name))


def _compare_lists(path: str, settings: list[Json], resolved: list[Json]) -> Iterator[Difference]:
    # Plugins may sort what has no order.
    if ".parameters" in path and sorted(map(str, settings)) == sorted(map(str, resolved)):
        return
    for index, (setting, value) in enumerate(itertools.zip_longest(settings, resolved)):
        yield from _compare(f"{path}[{index}]", setting, value)
