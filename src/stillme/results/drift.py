"""How this machine's audit.toml, plugins and files differ from what a run recorded. For display only."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from pydantic import ValidationError

from stillme import registry
from stillme.audit.config import Config, EditorSection, JudgeSection
from stillme.design import FILE, UNKEYED_SECTIONS, EditorRecord, JudgeRecord
from stillme.errors import StillmeError
from stillme.protocols import Editor, Fingerprinted, Judge
from stillme.results.run import Run
from stillme.types import Json

_SHOWN = 3
_LOOKED_AT = 20
_RESOLVED = frozenset({"name", "version", "seeds", "count", "hash", "parameters", "combined", "primary"})
"""Keys that resolving adds to the configuration; plugins are compared separately."""


def drift(run: Run) -> list[str]:
    """A phrase for each difference; empty if the current configuration is the recorded one."""
    file = run.folder / FILE
    if not file.is_file():
        return []
    try:
        data = tomllib.loads(file.read_text("utf-8-sig"))
        config = Config.model_validate(data)
    except (OSError, ValueError, ValidationError) as error:
        return [f"{FILE} can no longer be read ({str(error).splitlines()[0]})"]
    base = (run.folder / (config.base or "")).resolve()
    return [
        *_settings(config, run.design.resolved),
        *_plugins(run, "editor", config.editors, run.design.editors, base),
        *_plugins(run, "judge", config.judges, run.design.judges, base),
        *_portraits(config.portraits.source, base),
    ]


def sentence(differences: Sequence[str]) -> str:
    """All of it in one line, for standard error."""
    shown = "; ".join(differences[:_SHOWN])
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    return f"Note: {shown}{more}. The recorded configuration is used; `stillme run` applies the new one."


def _settings(config: Config, resolved: Mapping[str, Json]) -> Iterator[str]:
    """Differences of audit.toml itself."""
    recorded = {name: part for name, part in resolved.items() if name not in UNKEYED_SECTIONS}
    live = config.model_dump(mode="json")
    changed = [
        f"{path}: {before} → {after}"
        for path, before, after in _compared(recorded, live)
        if "mitigation" not in path.split(".")[0]
    ]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        yield f"{FILE} changed ({changed[0]}{more})"


def _compared(recorded: Json, live: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Differences of two configurations, except what resolving filled in or added."""
    if isinstance(recorded, Mapping) and isinstance(live, Mapping):
        one, other = cast("Mapping[str, Json]", recorded), cast("Mapping[str, Json]", live)
        for name in sorted(one.keys() | other.keys()):
            if name in _RESOLVED or name in UNKEYED_SECTIONS:
                continue
            if other.get(name) is None and (name == "factors" or one.get(name) is None):
                continue
            yield from _compared(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    elif isinstance(recorded, list) and isinstance(live, list):
        one_list, other_list = cast("list[Json]", recorded), cast("list[Json]", live)
        if len(one_list) != len(other_list):
            yield path, f"{len(one_list)} entries", f"{len(other_list)} entries"
        for index, (before, after) in enumerate(zip(one_list, other_list, strict=False)):
            yield from _compared(before, after, f"{path}[{index}]")
    elif recorded != live and not (recorded is None and not live):
        yield path, "absent" if recorded is None else recorded, "absent" if live is None else live


def _plugins(
    run: Run,
    kind: Literal["editor", "judge"],
    sections: Sequence[EditorSection] | Sequence[JudgeSection],
    records: Sequence[EditorRecord] | Sequence[JudgeRecord],
    base: Path,
) -> Iterator[str]:
    """Editors or judges that changed."""
    recorded = {record.name: record.spec for record in records}
    for section in sections:
        name = section.name or section.use
        before = recorded.get(name)
        if before is None:
            continue
        try:
            plugin: Editor | Judge = (
                registry.build("editor", section.use, section.parameters, base=base, ready=False)
                if kind == "editor"
                else registry.build("judge", section.use, section.parameters, base=base, ready=False)
            )
        except StillmeError as error:
            yield f"the {kind} {name!r} cannot be used here ({str(error).splitlines()[0].rstrip('.')})"
            continue
        if plugin.spec.version != before.version:
            yield f"{kind} {name!r} version changed: {before.version} → {plugin.spec.version}"
        elif plugin.spec.key != before.key or plugin.spec.stated != before.stated:
            changed = sorted(
                parameter
                for parameter in {*plugin.spec.stated, *before.stated}
                if plugin.spec.stated.get(parameter) != before.stated.get(parameter)
            )
            yield f"{kind} {name!r} parameters changed ({', '.join(changed) or 'another plugin'})"
        elif isinstance(plugin, Fingerprinted):
            yield from _files(run, name, plugin)


def _files(run: Run, name: str, editor: Fingerprinted) -> Iterator[str]:
    """Check some files of a folder of finished edits."""
    asked = (request for request in run.requests(name) if request.content)
    for recorded in itertools.islice(asked, _LOOKED_AT):
        request = recorded.request(run.design)
        content = editor.fingerprint(request.portraits, request.prompt, request.arm, request.seed)
        if content != recorded.content:
            what = "changed" if content else "was removed"
            yield f"the file of editor {name!r} for {request.portraits[0].id} × {request.prompt.id} {what}"
            return


def _portraits(source: str, base: Path) -> Iterator[str]:
    if "/" in source and not (base / source).is_dir():
        yield f"the portrait folder {source} does not exist"
