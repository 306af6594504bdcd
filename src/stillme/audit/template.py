"""The commented audit.toml that `stillme new` writes."""

from __future__ import annotations

AUDIT = """\
# An audit: portraits, prompts, editors, judges, and the groups to compare.
# `stillme run` checks this whole file before anything runs, and resumes where it stopped.

title = "{title}"

# How the prompt reaches the editor. "noop" asks for no change: it measures the editor's noise floor.
arms = ["baseline"]

[portraits]
# "synthetic" is the embedded set of rendered people. Your own: a folder such as "./portraits" that
# holds pictures and a portraits.csv (columns: file, licence, label_origin, and any attributes).
source = "synthetic"
# Use only some: by attribute values, or the first N.
# only = {{ gender_presentation = "feminine" }}
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
by = "preset"                                    # the attribute that the groups below are levels of
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
# The attributes whose groups are compared.
factors = ["preset", "gender_presentation"]
# Compare each group with a reference group instead of with the rest:
# reference = {{ preset = "B" }}
confidence = 0.95
replicates = 2000
seed = 0

[budget]
# Limits: dollars for the whole run folder (raise them to continue), minutes for each `stillme run`.
# dollars = 20.0
# minutes = 60

[executor]
kind = "local"
# workers = 2
"""


def small_audit(title: str) -> str:
    """An audit that runs on any machine in about a minute: embedded portraits, planted editors, instruments."""
    groups = [f'groups."{level}" = {{ erasure = 0.40, skin_shift = 6.0, skin_spread = 1.0 }}' for level in ("A", "E")]
    return AUDIT.format(
        title=quoted(title),
        prompts='["O-01", "V-02"]',
        everyone="{ erasure = 0.05, skin_spread = 1.0 }",
        groups="\n".join(groups),
    )


def quoted(title: str) -> str:
    """A title, escaped for a TOML string."""
    return title.replace("\\", "\\\\").replace('"', '\\"')
