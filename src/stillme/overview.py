"""What there is to use, and how far a run has come."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from stillme import audit as audits
from stillme import calibration, registry
from stillme.audit import Audit
from stillme.errors import BrokenPlugin, StillmeError
from stillme.portraits import folder as portrait_folder
from stillme.portraits.sheet import write_sheet
from stillme.protocols import Judge, Vouched
from stillme.store import Store, Totals
from stillme.types import Portrait, Prompt

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of `stillme list`, and what stands behind it."""

    title: str
    summary: str
    details: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return dict(self.details)

    def as_text(self, *, full: bool) -> str:
        """One line, or everything."""
        head = f"{self.title:<24} {self.summary}".rstrip()
        if not full:
            return head
        shown = {name: value for name, value in self.details.items() if name not in ("name", "summary", "cards")}
        rest = [f"  {name}: {value}" for name, value in shown.items() if value not in ("", None, [], {})]
        return "\n".join([head, *rest, *(f"\n{card}" for card in self.details.get("cards", ()))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a run has come, by editor and by judge."""

    folder: Path
    editors: Mapping[str, Mapping[str, int]]
    judges: Mapping[str, Mapping[str, int]]
    totals: Totals
    changed: bool
    """Whether audit.toml differs from what the last run used."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "editors": [{"name": name, **counts} for name, counts in self.editors.items()],
            "judges": [{"name": name, **counts} for name, counts in self.judges.items()],
            "cost": self.totals.cost,
            "seconds": self.totals.seconds,
            "audit_changed": self.changed,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.folder}"]
        for kind, entries in (("edit", self.editors), ("judge", self.judges)):
            for name, counts in entries.items():
                rest = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word not in ("total", "done") and n)
                done, total = counts["done"], counts["total"]
                share = f"{done / total:4.0%}" if total else "  –"
                lines.append(f"  {kind:<6}{name:<20}{share}  {done:,} of {total:,}{f' ({rest})' if rest else ''}")
        lines.append(f"  cost  ${self.totals.cost:,.2f}, {self.totals.seconds:,.0f} s of work")
        if self.changed:
            lines.append("  audit.toml has changed since the last run; `stillme run` explains what would be redone.")
        return "\n".join(lines)


def status_of(path: Path, out: Path | None) -> Status:
    """Count the rows of the audit at `path`, without disturbing a process that is writing them."""
    loaded = audits.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    editors = {named.name: Counter(total=loaded.request_count(named), done=0) for named in loaded.editors}
    judges = {named.name: Counter(total=0, done=0) for named in loaded.judges}
    with Store.reading(loaded.folder) as store:
        for editor, chunk in _chunks(loaded):
            stored = store.edits([request.key for request in chunk])
            for found in stored.values():
                editors[editor]["done"] += found.final
                editors[editor][found.outcome if found.final else "to retry"] += 1
            for named in loaded.judges:
                keys = [
                    key
                    for request in chunk
                    if (found := stored.get(request.key)) and found.image
                    for key, _ in loaded.assessments(named, request, found.image)
                ]
                judges[named.name].update(total=len(keys), done=len(store.finished_assessments(keys)))
        latest = store.latest_audit()
        return Status(
            folder=loaded.folder,
            editors=editors,
            judges=judges,
            totals=store.totals(),
            changed=latest is not None and latest.hash != loaded.hash,
        )


def _chunks(loaded: Audit) -> Iterator[tuple[str, list[Any]]]:
    for named in loaded.editors:
        requests = loaded.requests(named)
        while chunk := list(itertools.islice(requests, _CHUNK)):
            yield named.name, chunk


def catalogue(what: str, name: str | None) -> list[Entry]:
    """What `stillme list` shows of a kind, all or one in full."""
    match what:
        case "editors":
            return [_plugin_entry("editor", each) for each in _chosen("editor", name)]
        case "judges":
            return [_plugin_entry("judge", each) for each in _chosen("judge", name)]
        case "prompts":
            sets = _chosen("prompt set", name)
            return [_prompt_entry(each, prompt) for each in sets for prompt in registry.prompt_set(each)]
        case _:
            return [_portrait_entry(set_, portrait) for set_, found in _portraits(name) for portrait in found]


def contact_sheet(name: str | None, file: Path) -> Path:
    """Write the contact sheet of a portrait set or folder, by default of the embedded set."""
    ((_, portraits),) = _portraits(name or "synthetic")
    return write_sheet(portraits, file)


def _portraits(name: str | None) -> Iterator[tuple[str, tuple[Portrait, ...]]]:
    if name and name not in registry.plugins("portrait set") and Path(name).is_dir():
        yield name, portrait_folder.load(Path(name))
    else:
        yield from ((each, registry.portrait_set(each)) for each in _chosen("portrait set", name))


def _chosen(kind: registry.Kind, name: str | None) -> Sequence[str]:
    return list(registry.plugins(kind)) if name is None else [registry.plugin(kind, name).name]


def _plugin_entry(kind: registry.Kind, name: str) -> Entry:
    try:
        loaded = registry.editor_class(name) if kind == "editor" else registry.judge_class(name)
    except BrokenPlugin as error:
        # One broken package must not hide the others.
        return Entry(
            title=name, summary=f"[broken: {error}]", details={"name": name, "ready": False, "lacking": [str(error)]}
        )
    summary = (inspect.getdoc(loaded) or "").partition("\n")[0]
    lacking = registry.unmet(loaded.needs)
    return Entry(
        title=name,
        summary=summary + (f" [needs: {'; '.join(lacking)}]" if lacking else ""),
        details={
            "name": name,
            "summary": summary,
            "package": registry.plugin(kind, name).package,
            "ready": not lacking,
            "lacking": lacking,
            "parameters": _parameters(loaded.Parameters),
            **_trust(loaded),
        },
    )


def _trust(loaded: Any) -> dict[str, Any]:
    """A judge's calibration and validity cards, with its default parameters."""
    if not hasattr(loaded, "judge"):
        return {}
    try:
        judge: Judge = loaded(loaded.Parameters())
    except ValidationError:
        return {"calibration": "needs parameters"}
    known = calibration.find(judge.spec)
    state = known.verdicts if known else "not calibrated"
    return {
        "calibration": state,
        "cards": [card.text() for card in judge.cards()] if isinstance(judge, Vouched) else [],
    }


def _parameters(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return schema.get("properties", {})


def _prompt_entry(set_: str, prompt: Prompt) -> Entry:
    details = {"name": prompt.id, "set": set_, **asdict(prompt)}
    return Entry(title=f"{set_} {prompt.id}", summary=prompt.text, details=details)


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
