"""Whether the parts of an audit fit together: factors and portraits, prompts and editors, rules and judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stillme.audit.audit import NamedEditor, NamedJudge
from stillme.audit.config import EnsembleSection, EstimatesSection, ReuseSection, RolesSection, SampleSection
from stillme.audit.grid import COLUMNS, Cast, Sample, casts, couples, draw, factors_like_papers, levels_of, read_cells
from stillme.audit.places import Location
from stillme.core.errors import StillmeError, did_you_mean
from stillme.core.protocols import Plugin
from stillme.core.types import Portrait, Prompt, Spec
from stillme.judges.ensemble import PAIRWISE

Say = Callable[[Location, str], None]
"""Adds a problem at its place; the check continues."""


def factors_of(say: Say, section: EstimatesSection, portraits: tuple[Portrait, ...]) -> tuple[str, ...]:
    """The attributes whose groups are compared."""
    levels = levels_of(portraits)
    named = section.factors if section.factors is not None else factors_like_papers(portraits)
    for factor in named:
        if portraits and factor not in levels:
            known = ", ".join(sorted(levels)) or "none"
            say(
                ("estimates", "factors"),
                f"no portrait has the attribute {factor!r}.{did_you_mean(factor, levels)} Known: {known}",
            )
    for factor, level in section.reference.items():
        if portraits and level not in levels.get(factor, ()):
            known = ", ".join(sorted(levels.get(factor, ()))) or "none"
            say(("estimates", "reference", factor), f"no portrait has {factor} = {level!r}; known: {known}")
    return tuple(named)


def cast_roles(
    say: Say,
    section: RolesSection,
    portraits: tuple[Portrait, ...],
    prompts: tuple[Prompt, ...],
    factors: tuple[str, ...],
) -> tuple[Cast, ...]:
    """Every role prompt with its people."""
    acted = [prompt for prompt in prompts if prompt.target]
    if prompts and not acted:
        say(("roles",), 'no prompt names a target; add the set "roles", or remove [roles]')
    for prompt in acted:
        if prompt.stereotype is None:
            say(("roles",), f"the prompt {prompt.id!r} has no stereotype; set it to male or female")
    paired = couples(portraits, section, factors)
    if portraits and acted and not paired:
        say(
            ("roles",),
            f"no two portraits have {section.gender} = {section.male!r} and {section.female!r} and are otherwise "
            "equal; correct `gender`, `male` and `female`, or list in `match` the attributes that must be equal",
        )
    return tuple(casts(acted, paired, section)) if paired else ()


def check_inputs(say: Say, editors: Sequence[NamedEditor], casts: Sequence[Cast]) -> None:
    """Every editor must take as many pictures as a request carries."""
    needed = max((len(cast.portraits) for cast in casts), default=1)
    for index, named in enumerate(editors):
        takes = named.editor.capabilities.inputs
        if takes < needed:
            say(
                ("editors", index, "use"),
                f"{named.name!r} takes {takes} picture at a time, but role_pair needs {needed}; remove this editor, "
                'or set layouts = ["role_single"] under [roles]',
            )


def draw_sample(
    say: Say,
    section: SampleSection | None,
    editors: Sequence[str],
    portraits: Sequence[Portrait],
    prompts: Sequence[Prompt],
    factors: tuple[str, ...],
    base: Path,
) -> Sample | None:
    """The part of the grid that is run; None for all of it."""
    if section is None or not (editors and portraits):
        return None
    if section.cells is not None:
        return _listed(say, base / section.cells, editors, portraits, prompts)
    size = section.size or 0
    cells = len(editors) * len(portraits) * len(prompts)
    if not prompts:
        say(
            ("sample",),
            "has no cells to draw from: [roles] assigns people to role prompts, and the audit has no other prompts; "
            "remove [sample]",
        )
    elif size > cells:
        say(("sample", "size"), f"is more than the {cells:,} cells of this audit; remove [sample]")
    return draw(portraits, prompts, editors, factors=factors, size=size, seed=section.seed)


def _listed(
    say: Say, file: Path, editors: Sequence[str], portraits: Sequence[Portrait], prompts: Sequence[Prompt]
) -> Sample | None:
    """The cells of a file; every name in it must be one of the audit's."""
    place = ("sample", "cells")
    try:
        cells = read_cells(file)
    except StillmeError as error:
        say(place, str(error))
        return None
    names = (set(editors), {portrait.id for portrait in portraits}, {prompt.id for prompt in prompts})
    for position, (column, known) in enumerate(zip(COLUMNS, names, strict=True)):
        for name in sorted({cell[position] for cell in cells} - known):
            say(place, f"{file.name} names the {column} {name!r}.{did_you_mean(name, known)} The audit has none such")
    return Sample.of(cells, editors)


def check_reuse(say: Say, section: ReuseSection | None, base: Path) -> None:
    """What is to be taken over must be there."""
    for index, name in enumerate(section.runs if section else ()):
        if not (base / name).is_dir():
            say(("reuse", "runs", index), f"{name!r} is not a folder; write the folder of a run")


def check_specs_differ(say: Say, kind: str, plugins: Sequence[tuple[str, Plugin]], instead: str) -> None:
    """Equal editors, or judges, would share their rows, also if they are asked at different servers."""
    seen: dict[str, tuple[str, Spec]] = {}
    for index, (name, plugin) in enumerate(plugins):
        spec = plugin.spec
        if spec.key in seen:
            other, same = seen[spec.key]
            differ = sorted({*spec.unkeyed, *same.unkeyed})
            but = f" (a different {' or '.join(differ)} makes no other {kind})" if differ else ""
            say((f"{kind}s", index), f"{name!r} is the same {kind} as {other!r}{but}; remove one, or {instead}")
        seen[spec.key] = name, spec


def check_ensemble(say: Say, section: EnsembleSection | None, judges: Sequence[NamedJudge]) -> None:
    """A rule must suit the judges that it combines: how many they are, and what they are told."""
    section = section or EnsembleSection()
    known = [named.name for named in judges]
    for name in section.judges or ():
        if judges and name not in known:
            say(("ensemble", "judges"), f"no judge {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}")
    for name in sorted({name for name in section.judges or () if (section.judges or []).count(name) > 1}):
        say(("ensemble", "judges"), f"names {name!r} twice; name each judge once")
    parts = [named for named in judges if _is_combined(section, named)]
    told = [named.name for named in parts if named.judge.capabilities.labels]
    blind = [named.name for named in parts if not named.judge.capabilities.labels]
    if told and blind and not section.mixed_disclosure:
        say(
            ("ensemble", "judges"),
            f"combines judges that are told the labels ({', '.join(told)}) with blind ones ({', '.join(blind)}); name "
            "only one kind, write judges = [] to combine none, or accept it with mixed_disclosure = true",
        )
    if section.rule in PAIRWISE and len(parts) > 2:
        say(
            ("ensemble", "rule"),
            f"{section.rule!r} is for two judges, but there are {len(parts)}; use mean, median or worst, "
            "or name two under `judges`",
        )


def _is_combined(section: EnsembleSection, named: NamedJudge) -> bool:
    return named.name in section.judges if section.judges is not None else named.judge.capabilities.kind == "model"


def check_requests(
    say: Say, kind: str, plugins: Sequence[Plugin], portraits: tuple[Portrait, ...], prompts: tuple[Prompt, ...]
) -> None:
    """Report what an editor or judge cannot do, before the first edit is paid for."""
    for index, plugin in enumerate(plugins):
        for sentence in plugin.problems(portraits, prompts):
            say((kind, index, "parameters"), sentence)
