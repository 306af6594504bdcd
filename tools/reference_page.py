"""Write docs/reference.md from the code: plugin hooks, names a plugin builds on, and the columns of every table.

What has no docstring, and no meaning below, stops the page: nothing is exported without an explanation.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from stillme import estimates, plugins
from stillme.core import protocols
from stillme.core.protocols import documented, documented_fields
from stillme.core.types import Estimate
from stillme.estimates.agreement import Agreement
from stillme.estimates.behaviour import Behaviour
from stillme.estimates.directions import Shift
from stillme.estimates.people import AgainstPeople, Corrected
from stillme.findings.tables import estimates as estimate_tables
from stillme.findings.tables.analyses import ANALYSES
from stillme.plugins import testing
from stillme.runs.control_pairs.reading import RightAnswers
from stillme.runs.readings import ReadingCount, Transition

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"

DISPARITY = (estimates.Disparity, estimates.NullBand)
RECORDS: dict[str, tuple[type, ...]] = {
    "contrasts": (estimates.Contrast, estimates.PermutationTest),
    "pooled": DISPARITY,
    "cuts": DISPARITY,
    "prompts": DISPARITY,
    "subcategories": DISPARITY,
    "intersections": DISPARITY,
    "icc": (estimates.IntraclassCorrelation,),
    "row_tests": (estimates.RowTest,),
    "mitigation": (estimates.PairedEffect, *DISPARITY),
    "above_floor": DISPARITY,
    "roles": (estimates.Adherence,),
    "shifts": (Shift,),
    "transitions": (Transition,),
    "readings": (ReadingCount,),
    "agreement": (Agreement,),
    "position_bias": (Behaviour,),
    "repeatability": (Behaviour,),
    "disclosure": (Behaviour,),
    "coverage": (Behaviour,),
    "control_pairs": (RightAnswers,),
    "against_people": (AgainstPeople,),
    "corrected": (Corrected,),
}
"""What the rows of each analysis are made from; the fields of the second and later ones have a prefix."""

PREFIXES = {estimates.NullBand: "null_", estimates.PermutationTest: "permutation_"}

ADDED = {
    "coverage": ("primary",),
}

MEANINGS = {
    "abstained": "questions without an answer",
    "after": "the same under the arm",
    "among": "whether raters are judges or people",
    "answers": "answers that were given",
    "arm": "how the prompt reached the editor",
    "axis": "the question or measured quantity",
    "calibrated": "whether the expected share comes from the judge's own calibration",
    "chance alone stays below": "the gap that chance alone stays below, with the audit's confidence",
    "confidence": "of the interval",
    "edits": "edits that the number is computed from",
    "editor": "its name in the audit; `all` for all together",
    "estimate": "value and interval as text",
    "factor": "the attribute that divides the portraits",
    "group": "one level of the factor",
    "high": "upper end of the interval",
    "judge": "its name in the audit; empty where edits are counted and not judged",
    "judge_note": "where the judge is not calibrated, or failed; empty if it passed",
    "layout": "how the people were put before the editor: a pair, or one alone",
    "level": "the group that is compared",
    "low": "lower end of the interval",
    "lowest": "the group at the other end",
    "margin": "the largest difference that does not matter",
    "mean": "what chance gives on average",
    "measure": "what is computed",
    "method": "how the interval was computed",
    "not_estimable": "why there is no number",
    "null": "empty where no permutation test was made",
    "null_high": "chance stays below this with the audit's confidence",
    "null_mean": "what chance gives on average",
    "null_p": "how often chance reached the observed max - min (permutation over units, within blocks)",
    "omnibus_p": "how often chance made all groups together differ as much: the test to rely on",
    "p": "p value",
    "people": "the name of the people's ratings",
    "portraits": "portraits that the number is computed from: the unit of every interval",
    "primary": "the primary judge of the ensemble",
    "prompts": "the prompt, or the set of prompts; empty for all",
    "quantity": "a mean (`skin_delta_l`) or a named rate (`unchanged`)",
    "rated_by_people": "edits that people rated too",
    "ratings": "single ratings",
    "reference": "the group that it is compared with",
    "right": "answers that agree with the known truth",
    "scope": "`all`, `group`, `contrast` or `disparity`",
    "sentences": "role prompts",
    "statistic": "of the test",
    "test": "which test",
    "tone": "the skin-tone group of the portraits; `everyone` for all",
    "value": "the estimate",
}
"""Columns whose field needs no docstring of its own."""

_INTERVAL = ("value", "low", "high", "method", "not_estimable")
_SUBJECT = ("outcome", "icc")


def page() -> str:
    """The whole page; the same for the same version."""
    return "\n".join(
        [
            "# Reference",
            "",
            "Made from the code by `python tools/reference_page.py`. See also [Commands](commands.md),",
            "[audit.toml](audit.md) and [Python](python.md). `stillme schema study` explains study.toml.",
            "",
            "## Plugin hooks",
            "",
            "Base classes of `stillme.core.protocols`, which has the types. A plugin overrides `edit_one` or",
            "`judge_one`; everything else has a default.",
            "",
            *hooks(),
            "",
            "## What a plugin builds on",
            "",
            *names("stillme.plugins", plugins),
            "",
            "## Checks for plugins",
            "",
            *names("stillme.plugins.testing", testing),
            "",
            "## Columns",
            *columns(),
            "",
        ]
    )


def hooks() -> Iterator[str]:
    for hook in (protocols.Plugin, protocols.Editor, protocols.Judge, protocols.AcceptedJobs):
        yield f"- **{hook.__name__}**: {first_line(hook.__name__, hook)}"
        for part, member in vars(hook).items():
            is_property = isinstance(member, property)
            member = member.fget if is_property else member
            if inspect.isfunction(member) and not part.startswith("_"):
                shown = part if is_property else f"{part}({parameters(member)})"
                yield f"    - `{shown}`: {first_line(f'{hook.__name__}.{part}', member)}"


def parameters(function: Any) -> str:
    """Names only: the types stand in the protocol."""
    return ",".join(name for name in inspect.signature(function).parameters if name != "self")


def names(module: str, offered: Any) -> Iterator[str]:
    yield from (f"| `{module}` | what |", "|---|---|")
    for name in offered.__all__:
        yield f"| `{name}` | {meaning_of_name(module, name, getattr(offered, name))} |"


def meaning_of_name(module: str, name: str, thing: Any) -> str:
    if isinstance(thing, type | ModuleType) or callable(thing):
        return first_line(f"{module}.{name}", thing)
    if text := documented(offered_by(module, name)).get(name) or UNIONS.get(name):
        return text.strip().partition("\n")[0]
    raise SystemExit(f"{module}.{name} has no docstring; write one.")


UNIONS = {
    "EditOutcome": "`Edited`, `Refused` or `Failed`.",
    "Rating": "`Rated`, `Abstained` or `Failed`.",
}


def offered_by(module: str, name: str) -> str:
    """The source of the module that defines a constant."""
    import importlib
    import pkgutil

    package = importlib.import_module(module)
    inner = pkgutil.iter_modules(getattr(package, "__path__", ()), f"{module}.")
    homes = [package, *(importlib.import_module(found.name) for found in inner)]
    return next((source for home in homes if f"\n{name}" in (source := inspect.getsource(home))), "")


def columns() -> Iterator[str]:
    """Every meaning once: a column that several tables have stands in one row."""
    if set(RECORDS) != set(ANALYSES):
        raise SystemExit(f"RECORDS lacks {set(ANALYSES) - set(RECORDS)}.")
    estimated = dict.fromkeys(
        column for name in ("_EVERYTHING", "_GROUPS", "_DISPARITIES") for column in getattr(estimate_tables, name)
    )
    known = documented_fields(Estimate)
    results = {"estimates": {name: MEANINGS.get(name) or known.get(name, "") for name in estimated}}
    results |= {analysis: columns_of(analysis) for analysis in ANALYSES}
    yield from ("", "### tables/estimates.csv, groups.csv, disparities.csv, statistics/*.csv", "")
    yield "An interval is five columns: `value`, `low`, `high`, `method`, `not_estimable`. A prefix names its quantity:"
    yield "`x_…` below stands for `x_value` and the other four. `null_…` describes the gap that chance produces."
    yield from ("", *table(merged(results)))
    yield from ("", "### export/*", "", "`codebook.md`, written next to the files, explains every column.")


def merged(tables: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Columns with their meanings; where a name has several, the less frequent ones say in which tables."""
    where: dict[str, dict[str, list[str]]] = {}
    for file, found in tables.items():
        for name, meaning in found.items():
            stem = next((name.removesuffix(f"_{end}") for end in _INTERVAL if name.endswith(f"_{end}")), "")
            if f"{stem}_not_estimable" in found:
                if name != f"{stem}_value":
                    continue
                name, meaning = f"{stem}_…", meaning.partition(": ")[0]
            where.setdefault(name, {}).setdefault(plain(meaning), []).append(file)
    for name in sorted(where):
        usual = max(where[name], key=lambda meaning: len(where[name][meaning]))
        others = (
            f"{meaning} ({', '.join(files)})" for meaning, files in where[name].items() if not usual.startswith(meaning)
        )
        yield name, "; ".join([usual, *others])


def plain(meaning: str) -> str:
    text = one_line(meaning).rstrip(".")
    return text if text.startswith("`") or text[1:2].isupper() else text[:1].lower() + text[1:]


def columns_of(analysis: str) -> dict[str, str]:
    """Each column of an analysis with its meaning."""
    main, *nested = RECORDS[analysis]
    found = {name: MEANINGS[name] for name in ADDED.get(analysis, ())} | dict(record_columns(main, ""))
    for record in nested:
        found |= dict(record_columns(record, PREFIXES.get(record, "")))
    if "judge" in found:
        found["judge_note"] = MEANINGS["judge_note"]
    return found


def record_columns(record: type, prefix: str) -> Iterator[tuple[str, str]]:
    documents = documented_fields(record)
    for part in fields(record):
        if not part.metadata.get("cell", True):
            continue
        said = one_line(documents.get(part.name, "")) or MEANINGS.get(part.name, "")
        if "Interval" in str(part.type):
            stem = "" if part.name in _SUBJECT else f"{part.name}_"
            for end in _INTERVAL:
                yield f"{prefix}{stem}{end}", f"{said}: {MEANINGS[end]}" if stem else MEANINGS[end]
        else:
            yield f"{prefix}{part.name}", said


def table(rows: Any, head: str = "column") -> Iterator[str]:
    yield from (f"| {head} | meaning |", "|---|---|")
    for name, meaning in rows:
        if not meaning:
            raise SystemExit(f"The {head} {name!r} has no meaning; give its field a docstring, or add it to MEANINGS.")
        yield f"| `{name}` | {one_line(meaning)} |"


def first_line(name: str, thing: Any) -> str:
    if not (text := inspect.getdoc(thing)):
        raise SystemExit(f"{name} has no docstring; write one.")
    return one_line(text.partition("\n\n")[0])


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
