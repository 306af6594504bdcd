"""Edits that only rows know of: whose portrait, which prompt, which editor, and what became of the edit."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from stillme.core import prompts
from stillme.core.types import Arm, ImageFile, Portrait, Prompt
from stillme.findings.exchange.columns import PROMPT_COLUMNS, Layout, Unreadable
from stillme.findings.exchange.table_files import Row
from stillme.runs import Run

STATES = ("edited", "refused", "failed")

_DEFAULTS = {"prompt": "all", "editor": "editor", "arm": "baseline", "state": "edited"}
_EDITED = STATES.index("edited")
_NOT_SAID = "rows"
"""The category of a prompt of which nothing is said."""

Cell = tuple[str, tuple[str, ...], str, str]
"""Editor, portraits, prompt and arm."""
Identity = tuple[str, tuple[str, ...], str, str, int | None]
"""Editor, portraits, prompt, arm and seed of an edit; the seed is None where it is not known."""


class NewEdits:
    """Edits by what rows say of them; those of a run of rows come first."""

    def __init__(self, layout: Layout, groups: Sequence[str], run: Run | None = None) -> None:
        self._layout = layout
        self.groups = tuple(dict.fromkeys([*(run.design.factors if run else ()), *groups]))
        self.portraits: dict[str, Portrait] = dict(run.design.portrait_by_id) if run else {}
        self.prompts: dict[str, Prompt] = dict(run.design.prompt_by_id) if run else {}
        self.editors: dict[str, int] = {}
        self.arms: dict[str, int] = {}
        self.requests: dict[Identity, int] = {}
        self.states = array("b")
        self._prompt_of: list[str] = []
        self._seeds: dict[Cell, list[int | None]] = {}
        self._described: dict[str, dict[str, str]] = {}
        """By prompt: what its first row says about it."""
        self._labelled: set[str] = set(self.portraits)
        if run:
            self._begin_with(run)

    def _begin_with(self, run: Run) -> None:
        known_seeds = {editor.name: bool(editor.seeds) for editor in run.design.editors}
        for editor in run.design.editors:
            self.editors[editor.name] = len(self.editors)
        for row in run.rows():
            request = row.request
            self.arms.setdefault(str(request.arm), len(self.arms))
            seed = request.seed if known_seeds[request.editor] else None
            self._edit((request.editor, request.portraits, request.prompt, str(request.arm)), seed)
            self.states.append(STATES.index(row.edit.outcome if row.edit else "failed"))
            self._prompt_of.append(request.prompt)

    @property
    def has_states(self) -> bool:
        """Whether the rows say what became of an edit; otherwise only edits that were made are in the file."""
        return self._layout.has("state") or "state" in self._layout.fixed

    @property
    def unlabelled(self) -> dict[str, int]:
        """How many portraits have no group, by the columns that have such."""
        counts = {
            group: sum(group not in portrait.attributes for portrait in self.portraits.values())
            for group in self.groups
        }
        return {group: count for group, count in counts.items() if count}

    def subcategory(self, edit: int) -> str:
        """Of its prompt; empty where rows do not say."""
        known = self.prompts[self._prompt_of[edit]].subcategory
        return "" if known == _NOT_SAID else known

    def find(self, row: Row, arm: str, *, has_scores: bool) -> int | None:
        """The edit of a row, new or known; None where it was refused or failed."""
        layout = self._layout
        cells = {name: layout.cell(row, name) or default for name, default in _DEFAULTS.items()}
        prompt = self._prompt(cells["prompt"], row)
        people = self._people(row, prompt)
        if (arm := arm or cells["arm"]) not in tuple(Arm):
            raise Unreadable(f"no arm {arm!r}; arms are {', '.join(Arm)}. Rename it in the file")
        seed = layout.cell(row, "seed")
        if seed and not seed.lstrip("-").isdecimal():
            raise Unreadable(f"seed = {seed!r} is not a whole number")
        if cells["state"] not in STATES:
            raise Unreadable(f"state = {cells['state']!r}; write {', '.join(STATES)}")
        self.editors.setdefault(cells["editor"], len(self.editors))
        self.arms.setdefault(arm, len(self.arms))
        edit = self._edit((cells["editor"], people, prompt.id, arm), int(seed) if seed else None)
        state = STATES.index(cells["state"])
        if edit == len(self.states):
            self.states.append(state)
            self._prompt_of.append(prompt.id)
        elif self.states[edit] != state:
            raise Unreadable(f"this edit is {cells['state']} here and {STATES[self.states[edit]]} in an earlier row")
        if state == _EDITED:
            return edit
        if has_scores:
            raise Unreadable(f"the edit is {cells['state']} and has scores; there is no picture to score")
        return None

    def _edit(self, cell: Cell, seed: int | None) -> int:
        """The edit of a cell; without a seed the only one that is known there."""
        seeds = self._seeds.setdefault(cell, [])
        if seed not in seeds and seeds:
            if seed is None and len(seeds) > 1:
                raise Unreadable(f"no seed; this edit has the seeds {', '.join(map(str, seeds))}")
            if seed is None or None in seeds:
                seed = seeds[0]
        if seed not in seeds:
            seeds.append(seed)
        return self.requests.setdefault((*cell, seed), len(self.requests))

    def _people(self, row: Row, prompt: Prompt) -> tuple[str, ...]:
        """The portraits of a row: one, or for a role prompt also two, written `a+b` with labels `Male+Female`."""
        layout = self._layout
        name = layout.cell(row, "portrait")
        if not name:
            raise Unreadable("no portrait; name its column with --map portrait=COLUMN")
        names = name.split("+") if prompt.stereotype else [name]
        given = [column for column in (*self.groups, "block") if layout.has(column) or column in layout.fixed]
        for place, portrait in enumerate(names):
            labels: dict[str, str] = {}
            for column in given:
                parts = layout.cell(row, column).split("+") if len(names) > 1 else [layout.cell(row, column)]
                # A role row that labels no one, or both with one word, labels the portraits elsewhere.
                if len(parts) == len(names):
                    labels[column] = parts[place]
            self._portrait(portrait, labels)
        return tuple(names)

    def _portrait(self, name: str, said: Mapping[str, str]) -> None:
        labels = {group: said[group] for group in self.groups if said.get(group)}
        known = self.portraits.get(name)
        if known is None:
            self.portraits[name] = Portrait(
                id=name,
                image=ImageFile(path=Path(), sha256=""),
                attributes=labels,
                label_origin="given with the rows",
                licence="not stated",
                block=said.get("block", ""),
            )
        elif not known.attributes and labels and name not in self._labelled:
            self.portraits[name] = replace(known, attributes=labels, block=said.get("block", known.block))
        else:
            before = {**known.attributes, "block": known.block}
            before = {column: before.get(column, "") for column in said}
            _same(f"portrait {name!r}", before, said, "a portrait belongs to one group and one block")
        if said:
            self._labelled.add(name)

    def _prompt(self, name: str, row: Row) -> Prompt:
        said = {column: self._layout.cell(row, column) for column in PROMPT_COLUMNS if self._layout.has(column)}
        if name not in self.prompts:
            self.prompts[name] = _described(name, said)
        _same(f"prompt {name!r}", self._described.setdefault(name, said), said, "give another prompt another name")
        return self.prompts[name]


@cache
def _papers() -> tuple[Mapping[str, Prompt], Mapping[str, Prompt]]:
    """The paper's prompts by text, and by id."""
    whole = (*prompts.diagnostic(), *prompts.roles(), *prompts.roles_counterbalance())
    printed = {prompt.text: prompt for prompt in prompts.roles_as_printed()}
    return printed | {prompt.text: prompt for prompt in whole}, {prompt.id: prompt for prompt in whole}


def is_papers(prompt: Prompt) -> bool:
    """Whether the paper has this prompt, word for word."""
    return prompt.text in _papers()[0]


def _described(name: str, said: Mapping[str, str]) -> Prompt:
    """A prompt of the paper by its text, or without any by its id; else what the row says of it."""
    by_text, by_id = _papers()
    text = said.get("prompt_text", "")
    known = by_text.get(text) if text else by_id.get(name)
    prompt = replace(known, id=name) if known else Prompt(id=name, text=text or name, category="", subcategory="")
    if (years := said.get("years", "")) and not years.lstrip("-").isdecimal():
        raise Unreadable(f"years = {years!r} is not a whole number; write by how many the prompt ages a person")
    if (stereotype := said.get("stereotype", "")) not in ("", "male", "female"):
        raise Unreadable(f"stereotype = {stereotype!r}; write male or female")
    return replace(
        prompt,
        category=said.get("category") or prompt.category or _NOT_SAID,
        subcategory=said.get("subcategory") or prompt.subcategory or _NOT_SAID,
        years=int(years) if years else prompt.years,
        target=said.get("target") or prompt.target,
        stereotype=stereotype or prompt.stereotype,
        pronoun=said.get("pronoun") or prompt.pronoun,
    )


def _same(what: str, before: Mapping[str, str], now: Mapping[str, str], why: str) -> None:
    for column in (*before, *now):
        was, now_is = before.get(column, ""), now.get(column, "")
        if was != now_is:
            raise Unreadable(f"{what} has {column} {now_is!r}, and {was!r} in an earlier row; {why}")
