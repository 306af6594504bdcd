"""The commented audit.toml that `stillme new` writes."""

from __future__ import annotations

AUDIT = """\
# An audit: who is edited, what is asked, by which editor, judged by whom, compared how.
# `stillme run` reads this file, checks all of it before anything runs, and resumes where it stopped.

title = "{title}"

# How the prompt reaches the editor. "noop" asks for no change at all: the editor's own floor.
arms = ["baseline"]

[portraits]
# "synthetic" is the embedded set of rendered people. Your own: a folder such as "./portraits" that
# holds pictures and a portraits.csv (columns: file, licence, label_origin, and any attributes).
source = "synthetic"
# Take only some: an attribute and its values, or the first so many.
# only = {{ gender_presentation = "feminine" }}
# limit = 10

[prompts]
# "diagnostic" (the paper's 20), "roles" (its 50 occupation sentences), or your own .csv or .toml file.
sets = ["diagnostic"]
only = {prompts}

# One table per editor; `stillme list editors` shows all. This one is a known-answer editor: it plants
# what the parameters say, so that you can see whether the audit finds it. Replace it with a real one.
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
by = "preset"                                    # the attribute that decides
everyone = {everyone}
{groups}

# One table per judge; `stillme list judges` shows all. Instruments measure on this machine, for free.
[[judges]]
use = "instruments"

[ensemble]
# How several judges become one: mean, paper, code, median or worst.
rule = "mean"

[estimates]
# The attributes whose groups are compared.
factors = ["preset", "gender_presentation"]
# Compare each level with one of them instead of with the rest:
# reference = {{ preset = "B" }}
confidence = 0.95
replicates = 2000
seed = 0

[budget]
# Stop by itself: dollars for the whole run folder (raise them to go on), minutes for each `stillme run`.
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
    """A title as it stands between the quotes of a TOML string."""
    return title.replace("\\", "\\\\").replace('"', '\\"')
