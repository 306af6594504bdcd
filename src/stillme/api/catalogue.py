"""What there is to use: editors, judges, prompts and portraits, as `stillme list` shows them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from stillme.core import registry
from stillme.core.errors import InvalidParameters, StillmeError
from stillme.core.protocols import Needs
from stillme.core.tables import aligned, counted
from stillme.core.types import Portrait, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of `stillme list`, and its details."""

    title: str
    summary: str
    details: Mapping[str, Any]
    notes: str = ""
    """What a plugin needs and can do; the sets that have a prompt."""

    def as_text(self) -> str:
        """Everything."""
        head = f"{self.title}  {self.summary}".rstrip()
        shown = {name: value for name, value in self.details.items() if name not in ("name", "summary", "cards")}
        lines = [line for name, value in shown.items() for line in _lines(name, value)]
        return "\n".join([head, *lines, *(f"\n{card}" for card in self.details.get("cards", ()))])


def as_table(what: str, entries: Sequence[Entry]) -> str:
    """A line for each, and for plugins a second one with the notes."""
    if what == "prompts":
        return "\n".join(aligned((entry.title, entry.notes, entry.summary) for entry in entries))
    rows = [[(entry.title, entry.summary), *([("", entry.notes)] if entry.notes else [])] for entry in entries]
    return "\n".join(aligned(itertools.chain.from_iterable(rows)))


def _lines(name: str, value: Any) -> Iterator[str]:
    if value in ("", None, [], {}):
        return
    if not isinstance(value, Mapping):
        yield f"  {name}: {value}"
        return
    yield f"  {name}:"
    for key, entry in cast("Mapping[str, Any]", value).items():
        yield f"    {key}: {_parameter(cast('Mapping[str, Any]', entry)) if isinstance(entry, Mapping) else entry}"


def _parameter(schema: Mapping[str, Any]) -> str:
    """A parameter from its JSON schema: type, bounds, default."""
    kinds = [str(part.get("type", "table")) for part in schema.get("anyOf", [schema])]
    values = [repr(value) for value in schema.get("enum", ())]
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    default = [f"default {schema['default']!r}"] if "default" in schema else ["required"]
    return ", ".join([" or ".join(values or kinds), *bounds, *default])


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "characters at least",
}


DEFAULT_PORTRAITS = "synthetic"


def catalogue(what: str, name: str | None, *, full: bool = True) -> list[Entry]:
    """What `stillme list` shows of a kind, all or one; without `full`, plugins lack what only their details show."""
    match what:
        case "editors":
            return [_plugin_entry("editor", editor, full=full) for editor in _chosen("editor", name)]
        case "judges":
            return [_plugin_entry("judge", judge, full=full) for judge in _chosen("judge", name)]
        case "prompts":
            sets = _chosen("prompt set", name)
            entries = _entries(sets, name, lambda set_: [_prompt_entry(set_, p) for p in registry.prompt_set(set_)])
            return entries if full else _each_text_once(entries)
        case _ if name and _is_folder(name):
            return [_portrait_entry(name, portrait) for portrait in _folder(name)]
        case _ if name is None:
            return _entries(_chosen("portrait set", None), None, lambda set_: [_set_entry(set_)])
        case _:
            return [_portrait_entry(name, portrait) for portrait in registry.portrait_set(name)]


def contact_sheet(name: str | None, file: Path) -> Path:
    """Write the contact sheet of a portrait set or folder, by default of the embedded set."""
    from stillme.portraits.sheet import write_sheet

    if name and _is_folder(name):
        return write_sheet(_folder(name), file)
    return write_sheet(registry.portrait_set(name or DEFAULT_PORTRAITS), file)


def _folder(name: str) -> Sequence[Portrait]:
    from stillme.portraits import load  # reads pictures: with numpy and Pillow

    return load(Path(name))


def _is_folder(name: str) -> bool:
    return name not in registry.plugins("portrait set") and Path(name).is_dir()


def _entries(sets: Sequence[str], name: str | None, members: Callable[[str], list[Entry]]) -> list[Entry]:
    """The members of all sets. A broken one must not hide the others, unless it is the one that was asked for."""
    entries: list[Entry] = []
    for set_ in sets:
        try:
            entries += members(set_)
        except StillmeError as error:
            if name is not None:
                raise
            entries.append(_broken_entry(set_, str(error)))
    return entries


def _broken_entry(name: str, reason: str) -> Entry:
    details = {"name": name, "ready": False, "lacking": [reason]}
    return Entry(title=name, summary=f"[broken: {reason}]", details=details)


def _chosen(kind: registry.Kind, name: str | None) -> Sequence[str]:
    return list(registry.plugins(kind)) if name is None else [registry.plugin(kind, name).name]


def _plugin_entry(kind: registry.Buildable, name: str, *, full: bool) -> Entry:
    try:
        loaded = registry.plugin_class(kind, name)
        abilities = _capabilities(name) if kind == "editor" else _calibration(name) if full else {}
        parameters: Mapping[str, Any] = loaded.Parameters.model_json_schema().get("properties", {}) if full else {}
    except Exception as error:
        # One broken package must not hide the others.
        reason = str(error) if isinstance(error, StillmeError) else f"{type(error).__name__}: {error}"
        return _broken_entry(name, reason)
    summary = (inspect.getdoc(loaded) or "").partition("\n")[0]
    lacking = registry.unmet(loaded.needs)
    return Entry(
        title=name,
        summary=summary + (f" [needs: {'; '.join(lacking)}]" if lacking else ""),
        notes=" · ".join([*_describe_needs(loaded.needs), *_describe_capabilities(abilities.get("capabilities"))]),
        details={
            "name": name,
            "summary": summary,
            "package": registry.plugin(kind, name).package,
            "ready": not lacking,
            "lacking": lacking,
            "needs": {need: value for need, value in asdict(loaded.needs).items() if value},
            "parameters": parameters,
            **abilities,
        },
    )


def _calibration(name: str) -> dict[str, Any]:
    """A judge's calibration and validity cards, with its default parameters."""
    try:
        judge = registry.build("judge", name, {}, ready=False)
    except InvalidParameters:
        return {"calibration": "needs parameters"}
    from stillme.findings import calibration

    known = calibration.find(judge.spec)
    state = known.verdicts if known else "not calibrated"
    return {
        "calibration": state,
        "cards": [card.text() for card in judge.cards()],
    }


def _capabilities(name: str) -> dict[str, Any]:
    """An editor's capabilities, as far as they are known without the user's parameters."""
    try:
        editor = registry.build("editor", name, {}, ready=False)
    except InvalidParameters:
        return {"capabilities": "depend on required parameters"}
    return {"capabilities": asdict(editor.capabilities)}


def _describe_needs(needs: Needs) -> Iterator[str]:
    if needs.memory_gb:
        yield f"GPU with about {needs.memory_gb:g} GB"
    if needs.extra:
        yield f"stillme[{needs.extra}]"
    yield from needs.variables


def _describe_capabilities(can: Any) -> Iterator[str]:
    if not isinstance(can, Mapping):
        return
    known = cast("Mapping[str, Any]", can)
    yield f"{known['inputs']} pictures" if known["inputs"] > 1 else "1 picture"
    if known["batching"] != "none":
        yield f"batches ({known['batching']})"
    yield {"exact": "exact seeds", "best_effort": "seeds as hints", "none": "no seeds"}[known["seed"]]
    yield from ([] if known["reads_instruction"] else ["reads no instruction"])
    yield from (["can refuse"] if known["can_refuse"] else [])
    yield from (["rewrites prompts"] if known["rewrites_prompt"] else [])
    yield from ([f"prompts of {known['prompt_tokens']} tokens"] if known["prompt_tokens"] else [])


def _prompt_entry(set_: str, prompt: Prompt) -> Entry:
    details = {"name": prompt.id, "set": set_, **asdict(prompt)}
    return Entry(title=f"{set_} {prompt.id}", summary=prompt.text, details=details)


def _each_text_once(entries: Sequence[Entry]) -> list[Entry]:
    """Sets share prompts, and pairs of known truth share a text."""
    by_text: dict[str, list[Entry]] = {}
    for entry in entries:
        by_text.setdefault(entry.summary, []).append(entry)
    shown: list[Entry] = []
    for same in by_text.values():
        names = list(dict.fromkeys(str(entry.details["name"]) for entry in same))
        sets = ", ".join(dict.fromkeys(str(entry.details.get("set", "")) for entry in same))
        shown.append(replace(same[0], title=names[0] + f" and {len(names) - 1} more" * (len(names) > 1), notes=sets))
    return shown


def _set_entry(name: str) -> Entry:
    """One line a set."""
    portraits = registry.portrait_set(name)
    identities = len({portrait.block or f"/{portrait.id}" for portrait in portraits})
    licences = sorted({portrait.licence for portrait in portraits})
    default = name == DEFAULT_PORTRAITS
    size = f"{counted(len(portraits), 'portrait')}, {counted(identities, 'identity', 'identities')}"
    summary = f"{size}, {', '.join(licences)}{' (default)' * default}"
    return Entry(
        title=name,
        summary=summary,
        details={
            "name": name,
            "portraits": len(portraits),
            "identities": identities,
            "licences": licences,
            "default": default,
        },
    )


def _portrait_entry(set_: str, portrait: Portrait) -> Entry:
    attributes = dict(portrait.attributes)
    return Entry(
        title=f"{set_} {portrait.id}",
        summary=", ".join(f"{name} {value}" for name, value in list(attributes.items())[:3]),
        details={
            "id": portrait.id,
            "set": set_,
            "sha256": portrait.image.sha256,
            "attributes": attributes,
            "label_origin": portrait.label_origin,
            "licence": portrait.licence,
            "block": portrait.block,
            "path": str(portrait.image.path),
        },
    )
