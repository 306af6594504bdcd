"""Who took part in a run's human studies, as counts: nobody can be found in them.

The file holds no row for any person. Answers that fewer than five gave are added up, and nothing is kept of an
attribute where even that is fewer than five.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from stillme.errors import StillmeError
from stillme.files import write_whole

FILE = "participants.json"
FEWEST = 5
"""Counts below this are never kept."""
RARE = "small groups, together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Participants:
    """The participants of one study."""

    study: str
    count: int
    age_mean: float | None
    age_sd: float | None
    attributes: Mapping[str, Mapping[str, int]]
    """By attribute: how many gave each answer, the most frequent first."""


def summarised(study: str, rows: Sequence[Mapping[str, str]], attributes: Sequence[str], age: str) -> Participants:
    """The counts of these people, given as one row each."""
    if len(rows) < FEWEST:
        raise StillmeError(
            f"Only {len(rows)} of the export's people are raters of this study, too few to describe without naming "
            f"them; give the export of this study with {FEWEST} or more."
        )
    ages = [float(row[age]) for row in rows if row.get(age, "").isdigit()]
    counts = {name: suppressed(Counter(row.get(name, "") or "missing" for row in rows)) for name in attributes}
    return Participants(
        study=study,
        count=len(rows),
        age_mean=round(fmean(ages), 1) if len(ages) >= FEWEST else None,
        age_sd=round(stdev(ages), 1) if len(ages) >= FEWEST else None,
        attributes={name: shares for name, shares in counts.items() if shares},
    )


def suppressed(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts with small ones added up; so many that their sum is not small either."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    kept = [entry for entry in ordered if entry[1] >= FEWEST]
    rare = sum(count for _, count in ordered[len(kept) :])
    # Beside a total, one hidden count could be subtracted: the next one is hidden with it.
    while kept and 0 < rare < FEWEST:
        rare += kept.pop()[1]
    if 0 < rare < FEWEST:
        return {}
    return dict(kept) | ({RARE: rare} if rare else {})


def add(folder: Path, participants: Participants) -> Path:
    """Keep the counts of a study beside those of others; the same study replaces its own."""
    entries = [entry for entry in read(folder) if entry.study != participants.study]
    text = json.dumps([asdict(entry) for entry in (*entries, participants)], indent=1, ensure_ascii=False)
    return write_whole(folder / FILE, text)


def read(folder: Path) -> list[Participants]:
    """The studies whose participants are described; none where there is no file."""
    file = folder / FILE
    if not file.is_file():
        return []
    try:
        return [Participants(**entry) for entry in json.loads(file.read_text("utf-8"))]
    except (ValueError, TypeError) as error:
        raise StillmeError(
            f"{file} is damaged ({error}). Delete it, and close the study again with --demographics."
        ) from None
