"""An audit built in Python: the same object that audit.toml becomes, checked in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from stillme.audit.audit import Audit
from stillme.audit.loading import FILE, Given, load_given
from stillme.core.errors import StillmeError
from stillme.core.protocols import Editor, Judge
from stillme.core.types import Portrait, Prompt
from stillme.editors.own import FunctionEditor
from stillme.judges.own import FunctionJudge

EditorLike = str | Editor | Callable[..., Any] | Mapping[str, Any]
"""A plugin's name, an editor, a function that edits, or a table as in audit.toml."""
JudgeLike = str | Judge | Mapping[str, Any]
"""A plugin's name, a judge, or a table as in audit.toml. `function_judge` makes one of a function."""


def build(
    *,
    editors: EditorLike | Sequence[EditorLike] | Mapping[str, EditorLike],
    judges: JudgeLike | Sequence[JudgeLike] | Mapping[str, JudgeLike] = ("instruments",),
    portraits: str | Path | Sequence[Portrait] = "synthetic",
    prompts: str | Path | Sequence[str | Prompt] = "diagnostic",
    arms: Sequence[str] = ("baseline",),
    factors: Sequence[str] | None = None,
    folder: str | Path | None = None,
    title: str = "An audit",
    **sections: Mapping[str, Any],
) -> Audit:
    """An audit of these parts, the same object that audit.toml becomes; every problem is reported at once.

    `editors` are plugins' names, functions or `Editor` objects; `judges` likewise (a function with `function_judge`).
    `prompts` is a set's name, a file, or instructions. `folder` is where the run is kept. Further keywords are the
    sections of audit.toml: `estimates={"confidence": 0.9}`, `budget={"dollars": 5}`.
    """
    given = Given()
    data: dict[str, Any] = {"title": title, "arms": list(arms), **{name: dict(part) for name, part in sections.items()}}
    if factors is not None:
        data["estimates"] = {**data.get("estimates", {}), "factors": list(factors)}
    if isinstance(portraits, str | Path):
        data["portraits"] = {**data.get("portraits", {}), "source": str(portraits)}
    else:
        given.portraits = tuple(portraits)
    if isinstance(prompts, str | Path):
        data["prompts"] = {**data.get("prompts", {}), "sets": [str(prompts)]}
    else:
        given.prompts = tuple(_prompt(prompt, place) for place, prompt in enumerate(prompts, start=1))
    data["editors"] = [_editor(name, thing, given) for name, thing in _named(editors)]
    data["judges"] = [_judge(name, thing, given) for name, thing in _named(judges)]
    base = Path.cwd()
    audit = load_given(base / FILE, data, given, out=Path(folder) if folder else base)
    if folder is None:
        # Another audit gets another folder; the same one resumes.
        return audit.kept_in(base / f"stillme-{audit.hash[:8]}")
    return audit


def _named(things: Any) -> list[tuple[str | None, Any]]:
    if isinstance(things, Mapping) and "use" not in things:
        return list(cast("Mapping[str, Any]", things).items())
    # A name, a function or an object alone is one thing.
    several = cast("Sequence[Any]", things if isinstance(things, list | tuple) else [things])
    return [(None, thing) for thing in several]


def _prompt(prompt: str | Prompt, place: int) -> Prompt:
    if isinstance(prompt, Prompt):
        return prompt
    return Prompt(id=f"P-{place:02}", text=prompt, category="own", subcategory="own")


def _table(name: str | None, thing: str | Mapping[str, Any]) -> dict[str, Any]:
    return {**({"use": thing} if isinstance(thing, str) else thing), **({"name": name} if name else {})}


def _editor(name: str | None, thing: Any, given: Given) -> dict[str, Any]:
    """The table of audit.toml for an editor; an editor that is already built goes into `given`."""
    if isinstance(thing, str | Mapping):
        return _table(name, cast("str | Mapping[str, Any]", thing))
    if not isinstance(thing, Editor) and not callable(thing):
        raise StillmeError(f"{thing!r} is not an editor. Give a plugin's name, a function, or an `Editor`.")
    editor = thing if isinstance(thing, Editor) else FunctionEditor.of(thing)
    label = name or str(getattr(thing, "__name__", editor.spec.use))
    given.editors[label] = editor
    return {"use": editor.spec.use, "name": label}


def _judge(name: str | None, thing: Any, given: Given) -> dict[str, Any]:
    """The table of audit.toml for a judge; a judge that is already built goes into `given`."""
    if isinstance(thing, str | Mapping):
        return _table(name, cast("str | Mapping[str, Any]", thing))
    if not isinstance(thing, Judge):
        hint = " Name its axes: stillme.function_judge(rate, axes=[…])." if callable(thing) else ""
        raise StillmeError(f"{thing!r} is not a judge.{hint}")
    label = name or thing.spec.use
    given.judges[label] = thing
    return {"use": thing.spec.use, "name": label}


def function_judge(
    rate: Callable[..., Any],
    axes: Sequence[str],
    *,
    kind: Literal["model", "instrument", "person"] = "model",
    name: str | None = None,
) -> Judge:
    """A judge made of a function: `def rate(source, edited, instruction) -> {axis: score}`."""
    return FunctionJudge.of(rate, name, axes=axes, kind=kind)
