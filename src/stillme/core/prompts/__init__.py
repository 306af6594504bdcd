"""Prompt sets: the paper's 20 diagnostic and 50 role prompts, and the user's own."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from stillme.core.errors import InvalidPrompts, Problem, did_you_mean
from stillme.core.files import wrong_separator
from stillme.core.types import Prompt

COLUMNS = ("id", "text", "category", "subcategory", "years", "target", "stereotype", "pronoun")
"""What a prompt may have. `id` and `text` are required."""


@cache
def diagnostic() -> tuple[Prompt, ...]:
    """The paper's 20 portrait edits: 10 occupations, 10 vulnerabilities (Tables 10 and 11)."""
    return _packaged("diagnostic.csv")


@cache
def roles() -> tuple[Prompt, ...]:
    """The paper's 50 gender–occupation sentences in full; Table 23 abbreviates 31 of them."""
    return _packaged("roles.csv")


@cache
def role_origins() -> Mapping[str, str]:
    """By id of `roles`: `winobias:FILE`, `as printed` in the paper, or `restored from the print`."""
    return {str(entry["id"]): str(entry["origin"]) for _, entry in _packaged_entries("roles.csv")}


@cache
def roles_as_printed() -> tuple[Prompt, ...]:
    """The same 50 as Table 23 of the paper prints them, word for word: 31 are abbreviations, 11 lack their pronoun.

    One target is not the paper's: W-14's is cut off there ("construction"), and a judge can only be asked who is drawn
    as the construction worker.
    """
    return _packaged("roles_as_printed.csv")


@cache
def roles_counterbalance() -> tuple[Prompt, ...]:
    """The role sentences once with the other gender's pronoun and once with a neutral one."""
    return _packaged("roles_counterbalance.csv")


def stereotyped_gender(prompt: Prompt) -> str:
    """The gender, `male` or `female`, that the stereotype of a prompt expects; empty where no source names one.

    A prompt's own `stereotype` counts first. Of the diagnostic prompts, stereotypes.csv names seven with the source of
    each. O-08 asks for a cleaner or janitor: WinoBias lists the first among women's and the second among men's
    occupations, so it has none.
    """
    return prompt.stereotype or _stereotypes().get(prompt.text, "")


@cache
def _stereotypes() -> Mapping[str, str]:
    texts = {prompt.id: prompt.text for prompt in diagnostic()}
    entries = csv.DictReader(files("stillme.core.prompts").joinpath("stereotypes.csv").read_text("utf-8").splitlines())
    return {texts[entry["prompt"]]: entry["gender"] for entry in entries}


def load(path: Path) -> tuple[Prompt, ...]:
    """A user's own set: a CSV with a header, or TOML with `[[prompts]]` tables."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise InvalidPrompts(str(path), [Problem(place="", message=f"cannot be read ({error.strerror})")]) from None
    except UnicodeDecodeError:
        raise InvalidPrompts(str(path), [Problem(place="", message="is not UTF-8; save it as UTF-8")]) from None
    if path.suffix == ".toml":
        return _parse(str(path), _toml_entries(path, text))
    return _parse(str(path), _csv_entries(text))


def _packaged(name: str) -> tuple[Prompt, ...]:
    entries = _packaged_entries(name)
    return _parse(name, ((place, {key: entry[key] for key in entry if key != "origin"}) for place, entry in entries))


def _packaged_entries(name: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return _csv_entries(files("stillme.core.prompts").joinpath(name).read_text("utf-8"))


def _csv_entries(text: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), strict=True)
    if fault := wrong_separator(reader.fieldnames):
        raise csv.Error(fault)
    for entry in reader:
        yield f"line {reader.line_num}", entry


def _toml_entries(path: Path, text: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        tables = tomllib.loads(text).get("prompts", [])
    except tomllib.TOMLDecodeError as error:
        raise InvalidPrompts(str(path), [Problem(place="", message=f"is not TOML: {error}")]) from None
    for index, table in enumerate(cast("list[Any]", tables) if isinstance(tables, list) else [tables]):
        if not isinstance(table, dict):
            problem = Problem(place=f"prompts[{index}]", message="is not a table; write one `[[prompts]]` per prompt")
            raise InvalidPrompts(str(path), [problem])
        yield f"prompts[{index}]", cast("dict[str, Any]", table)


def _parse(source: str, entries: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[Prompt, ...]:
    problems: list[Problem] = []
    prompts: dict[str, Prompt] = {}
    try:
        for place, entry in entries:
            prompt = _prompt(place, entry, problems)
            if prompt and prompt.id in prompts:
                problems.append(Problem(place=place, message=f"the id {prompt.id!r} is used twice; ids must differ"))
            elif prompt:
                prompts[prompt.id] = prompt
    except csv.Error as error:
        problems.append(Problem(place="", message=f"is not CSV: {error}"))
    if not prompts and not problems:
        problems.append(
            Problem(place="", message=f"has no prompts; give at least the columns {COLUMNS[0]}, {COLUMNS[1]}")
        )
    if problems:
        raise InvalidPrompts(source, problems)
    return tuple(prompts.values())


def _prompt(place: str, entry: Mapping[str, Any], problems: list[Problem]) -> Prompt | None:
    before = len(problems)
    for name in entry:
        if name not in COLUMNS:
            hint = did_you_mean(str(name), COLUMNS) if name else ""
            problems.append(
                Problem(place=place, message=f"unknown column {name!r}.{hint} Known columns: {', '.join(COLUMNS)}")
            )
    value = {name: str(entry.get(name) or "").strip() for name in COLUMNS}
    for name in ("id", "text"):
        if not value[name]:
            problems.append(Problem(place=place, message=f"{name!r} is empty; every prompt needs one"))
    years = value["years"]
    if years and not years.lstrip("-").isdigit():
        problems.append(Problem(place=place, message=f"'years' is {years!r}; write a whole number such as 30"))
    for name, allowed in (("stereotype", ("male", "female")), ("pronoun", ("pro", "anti", "none"))):
        if value[name] and value[name] not in allowed:
            problems.append(Problem(place=place, message=f"{name!r} is {value[name]!r}; write {' or '.join(allowed)}"))
    if len(problems) > before:
        return None
    return Prompt(
        id=value["id"],
        text=value["text"],
        category=value["category"] or "own",
        subcategory=value["subcategory"] or "own",
        years=int(years) if years else None,
        target=value["target"] or None,
        stereotype=value["stereotype"] or None,
        pronoun=value["pronoun"] or None,
    )
