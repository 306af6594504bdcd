"""Whether the parts of an audit fit together: factors and portraits, prompts and editors, rules and judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stillme.audit.config import EnsembleSection, EstimatesSection, RolesSection, SampleSection
from stillme.audit.places import Location
from stillme.audit.plan import NamedEditor, NamedJudge
from stillme.audit.roles import Cast, casts, couples
from stillme.audit.sampling import Sample, draw
from stillme.errors import did_you_mean
from stillme.judges.ensemble import PAIRWISE
from stillme.protocols import ChecksRequests
from stillme.types import Portrait, Prompt

Say = Callable[[Location, str], None]
"""Adds a problem at its place; the check continues."""


def factors_of(say: Say, section: EstimatesSection, portraits: tuple[Portrait, ...]) -> tuple[str, ...]:
    """The attributes whose groups are compared."""
    levels: dict[str, set[str]] = {}
    for portrait in portraits:
        for attribute, level in portrait.attributes.items():
            levels.setdefault(attribute, set()).add(level)
    # By default every attribute that groups the portraits; measured numbers differ on nearly every one.
    grouping = [name for name, values in levels.items() if 2 <= len(values) <= max(2, len(portraits) // 2)]
    named = (
        section.factors if section.factors is not None else [name for name in grouping if not _numeric(levels[name])]
    )
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
    editors: Sequence[NamedEditor],
    portraits: Sequence[Portrait],
    prompts: Sequence[Prompt],
    factors: tuple[str, ...],
) -> Sample | None:
    """The part of the grid that is run; None for all of it."""
    if section is None or not (editors and portraits):
        return None
    cells = len(editors) * len(portraits) * len(prompts)
    if section.size > cells:
        say(("sample", "size"), f"is more than the {cells:,} cells of this audit; remove [sample]")
    names = [named.name for named in editors]
    return draw(portraits, prompts, names, factors=factors, size=section.size, seed=section.seed)


def check_specs_differ(say: Say, editors: Sequence[NamedEditor]) -> None:
    """Equal editors would share their rows."""
    seen: dict[str, str] = {}
    for index, named in enumerate(editors):
        key = named.editor.spec.key
        if key in seen:
            say(
                ("editors", index),
                f"{named.name!r} is the same editor with the same parameters as {seen[key]!r}; "
                "remove one, or list both seeds under `seeds`",
            )
        seen[key] = named.name


def check_judges_differ(say: Say, judges: Sequence[NamedJudge]) -> None:
    """Equal judges would share their rows, also if they are asked at different servers."""
    seen: dict[str, NamedJudge] = {}
    for index, named in enumerate(judges):
        spec = named.judge.spec
        if other := seen.get(spec.key):
            differ = sorted({*spec.unkeyed, *other.judge.spec.unkeyed})
            but = f" (a different {' or '.join(differ)} makes no other judge)" if differ else ""
            say(
                ("judges", index),
                f"{named.name!r} is the same judge as {other.name!r}{but}; remove one, or raise `epochs`",
            )
        seen[spec.key] = named


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
    say: Say, kind: str, plugins: Sequence[object], portraits: tuple[Portrait, ...], prompts: tuple[Prompt, ...]
) -> None:
    """Report what an editor or judge cannot do, before the first edit is paid for."""
    for index, plugin in enumerate(plugins):
        if isinstance(plugin, ChecksRequests):
            for sentence in plugin.problems(portraits, prompts):
                say((kind, index, "parameters"), sentence)


def _numeric(levels: set[str]) -> bool:
    return all(level.lstrip("-").replace(".", "", 1).isdigit() for level in levels)
