"""The commented audit.toml that `stillme new` writes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import tomli_w
from pydantic import BaseModel

from stillme.audit.grid import factors_like_papers, levels_of, reference_of
from stillme.core import registry
from stillme.core.errors import StillmeError
from stillme.core.types import Portrait

_BARE = re.compile(r"[A-Za-z0-9_-]+")

AUDIT = """\
# An audit: portraits, prompts, editors, judges, and the groups to compare.
# `stillme run` checks this whole file before anything runs, and resumes where it stopped.

title = "{title}"

# How the prompt reaches the editor. "noop" asks for no change: it measures the editor's noise floor.
arms = ["baseline"]

[portraits]
# "synthetic" is the embedded set of rendered people. Your own: a folder such as "./portraits" that
# holds pictures and a portraits.csv (columns: file, licence, label_origin, and any attributes).
source = "{source}"
# Use only some: by attribute values, or the first N.
# only = {{ {only} }}
# limit = 10

[prompts]
# "diagnostic" (the paper's 20), "roles" (its 50 occupation sentences), or your own .csv or .toml file.
sets = ["diagnostic"]
only = {prompts}

# One table per editor; `stillme list editors` shows all.{editors}
# One table per judge; `stillme list judges` shows all. Instruments measure offline and cost nothing. They cannot
# tell whether an edit shows what was asked: edit success and soft_erasure need a model or human raters.
{judges}
[ensemble]
# How several judges' scores are combined: mean, paper, code, median or worst.
rule = "mean"

[estimates]
{factors}
confidence = 0.95

[budget]
# Limits: dollars for the whole run folder (raise them to continue), minutes for each `stillme run`.
# dollars = 20.0
# minutes = 60

[executor]
kind = "local"
# workers = 2
"""


PLANTED = """ These two are known-answer editors: they make the changes
# that the parameters name, so that you can see whether the audit recovers them. Replace them with real ones.
[[editors]]
use = "planted"
name = "even-handed"
seeds = [1]
[editors.parameters]
everyone = {everyone}

[[editors]]
use = "planted"
name = "biased"
seeds = [1]
[editors.parameters]
everyone = {everyone}
{groups}
"""

EXAMPLES: Mapping[str, Any] = {
    "model": "NAME",
    "base_url": "http://localhost:8000/v1",
    "url": "http://localhost:8000/edit",
    "provider": "openai",
    "repo": "OWNER/NAME",
    "folder": "./edits",
    "source": "raters",
    "workflow": "./workflow.json",
    "axes": ["edit_success"],
    "run": ["python", "PROGRAM.py"],
    "template": {"image": "{image}", "prompt": "{instruction}"},
}
"""For parameters that a plugin needs, by their names: to be replaced with the user's own."""
OWN_FILES: Mapping[str, tuple[str, str]] = {
    "editor": (
        "edit.py:edit",
        "def edit(image, instruction):\n    return image  # a PIL image; call your model here\n",
    ),
    "judge": (
        "rate.py:rate",
        'def rate(source, edited, instruction):\n    return {"edit_success": 3}  # 1 to 5; call your model here\n',
    ),
}
"""What `--editor python` and `--judge python` write: the place of the function, and a file that runs as it is."""


def plugin_tables(kind: registry.Buildable, uses: Sequence[str]) -> str:
    """A commented table for each editor or judge, with an example for every parameter that must be set."""
    return "".join(_plugin_table(kind, use, uses[:place].count(use)) for place, use in enumerate(uses))


def _plugin_table(kind: registry.Buildable, use: str, before: int) -> str:
    name = registry.plugin(kind, use.partition(":")[0]).name
    loaded = registry.plugin_class(kind, name)
    fields = loaded.Parameters.model_fields
    needed = _needed(kind, use, loaded.Parameters)
    if before:
        # Equal editors would share their rows.
        needed = {key: f"{value}-{before + 1}" if isinstance(value, str) else value for key, value in needed.items()}
    lines = ["", f"# {(inspect.getdoc(loaded) or '').partition(chr(10))[0]}"]
    if any(key not in needed for key in fields):
        lines.append(f"# Further parameters: `stillme list {kind}s {name}`.")
    lines += [f"[[{kind}s]]", f'use = "{quoted(use)}"']
    if before or ":" in use:
        # The last word of `python:./edit.py:edit` is the function's name.
        short = quoted(use.rpartition(":")[2])
        lines.append(f'name = "{short}-{before + 1}"' if before else f'name = "{short}"')
    parameters = tomli_w.dumps({f"{kind}s": {"parameters": needed}}) if needed else ""
    return "\n".join([*lines, parameters])


def _needed(kind: registry.Buildable, use: str, parameters: type[BaseModel]) -> dict[str, Any]:
    """Examples for what the plugin cannot do without."""
    fields = parameters.model_fields
    needed = {key: EXAMPLES.get(key, "VALUE") for key, field in fields.items() if field.is_required()}
    if ":" in use or "function" in needed:
        # The word behind the colon is the first of them.
        return {key: value for key, value in needed.items() if key == "axes"}
    if use == "openai-compatible":
        needed["base_url"] = EXAMPLES["base_url"]
    for key in ("", *(key for key in EXAMPLES if key in fields and not needed)):
        with suppress(StillmeError):
            offered = {key: EXAMPLES[key]} if key else needed
            registry.build(kind, use, offered, ready=False)
            return offered
    # A plugin that reads a file of the user's, such as ComfyUI's workflow.
    return needed or {key: EXAMPLES[key] for key in fields if key in ("workflow",)}


def small_audit(
    title: str,
    source: str = "synthetic",
    portraits: Sequence[Portrait] | None = None,
    *,
    editors: Sequence[str] = (),
    judges: Sequence[str] = (),
) -> str:
    """An audit that runs on any machine in about a minute: embedded portraits, planted editors, instruments.

    Or with these editors and judges, which may need more.
    """
    people = portraits if portraits is not None else registry.portrait_set("synthetic")
    factor, *_ = factors_like_papers(people) or [""]
    levels = levels_of(people).get(factor, [])
    only = assignment(factor, levels[-1]) if levels else 'group = "a"'
    return AUDIT.format(
        title=quoted(title),
        source=quoted(source),
        prompts='["O-01", "V-02"]',
        only=only,
        editors="\n" + plugin_tables("editor", editors)
        if editors
        else PLANTED.format(everyone="{ erasure = 0.05, skin_spread = 1.0 }", groups=_planted(factor, levels)),
        judges=plugin_tables("judge", judges).lstrip("\n") if judges else '[[judges]]\nuse = "instruments"\n',
        # All factors of the user's own portraits; the embedded ones have more than a first audit needs.
        factors=factor_lines(people, most=2 if portraits is None or source == "synthetic" else None),
    )


def _planted(factor: str, levels: Sequence[str]) -> str:
    """The groups whose edits are worse: of the embedded presets A and E, of others the first."""
    if not levels:
        return "# The portraits have no attribute that groups them, so nothing differs between groups."
    worse = [level for level in levels if level in ("A", "E")] or levels[:1]
    changes = "{ erasure = 0.40, skin_shift = 6.0, skin_spread = 1.0 }"
    return "\n".join(
        [
            f'by = "{quoted(factor)}"  # the attribute that the groups below are levels of',
            *(f'groups."{quoted(level)}" = {changes}' for level in worse),
        ]
    )


def factor_lines(portraits: Sequence[Portrait], *, most: int | None = None) -> str:
    """What these portraits can be compared by, as lines of [estimates]."""
    factors = factors_like_papers(portraits)[:most]
    listed = ", ".join(f'"{quoted(factor)}"' for factor in factors)
    lines = [
        "# The attributes whose groups are compared. The paper's tables by group use the first.",
        f"factors = [{listed}]",
    ]
    if factors:
        reference = assignment(factors[0], reference_of(portraits, factors[0]))
        lines += [
            "# Compare each group with a reference group instead of with the rest:",
            f"# reference = {{ {reference} }}",
        ]
    return "\n".join(lines)


def assignment(name: str, value: str) -> str:
    """`race = "White"`, with a key that TOML can read."""
    key = name if _BARE.fullmatch(name) else f'"{quoted(name)}"'
    return f'{key} = "{quoted(value)}"'


def quoted(text: str) -> str:
    """Text, escaped for a TOML string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
