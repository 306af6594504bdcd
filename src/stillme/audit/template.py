"""The commented audit.toml that `stillme new` writes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stillme.audit.labels import factors_like_papers, levels_of, reference_of
from stillme.core import registry
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

# One table per editor; `stillme list editors` shows all. These two are known-answer editors: they make the changes
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

# One table per judge; `stillme list judges` shows all. Instruments measure offline and cost nothing. They cannot
# tell whether an edit shows what was asked: edit success and soft_erasure need a model or people.
[[judges]]
use = "instruments"

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


def small_audit(title: str, source: str = "synthetic", portraits: Sequence[Portrait] | None = None) -> str:
    """An audit that runs on any machine in about a minute: embedded portraits, planted editors, instruments."""
    people = portraits if portraits is not None else registry.portrait_set("synthetic")
    factor, *_ = factors_like_papers(people) or [""]
    levels = levels_of(people).get(factor, [])
    only = assignment(factor, levels[-1]) if levels else 'group = "a"'
    return AUDIT.format(
        title=quoted(title),
        source=quoted(source),
        prompts='["O-01", "V-02"]',
        only=only,
        everyone="{ erasure = 0.05, skin_spread = 1.0 }",
        groups=_planted(factor, levels),
        factors=factor_lines(people, most=2),
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
