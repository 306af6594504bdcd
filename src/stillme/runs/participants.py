"""Who took part in a run's human studies, as counts: no one can be found in them.

The file holds no row for any person. Answers that fewer than five gave are added up, so that none of them is named.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TypeVar

from stillme.core.errors import StillmeError
from stillme.core.files import write_whole

FILE = "participants.json"
STUDIES = "studies.json"
FEWEST = 5
"""Answers that fewer gave are never named."""
RARE = "small groups, together"
MISSING = "missing"
"""No answer: it says nothing about a person, so it is kept however few there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Participants:
    """The participants of one study."""

    study: str
    count: int
    age_mean: float | None
    age_sd: float | None
    attributes: Mapping[str, Mapping[str, int]]
    """By attribute: how many gave each answer, the most frequent first."""
    age_low: int | None = None
    age_high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatersOfStudy:
    """Whose answers of one study are in the run, and whose are not."""

    study: str
    counted: int
    excluded: Mapping[str, int]
    """How many raters by reason."""
    rule: str
    """What was decided about raters who failed checks, and when."""

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.excluded.items())
        left_out = f"excluded: {reasons}" if reasons else "no one was excluded"
        return f"{self.counted} raters count; {left_out}. {self.rule}"


_Described = TypeVar("_Described", Participants, RatersOfStudy)


def summarised(study: str, rows: Sequence[Mapping[str, str]], attributes: Sequence[str], age: str) -> Participants:
    """The counts of these people, given as one row each."""
    if len(rows) < FEWEST:
        raise StillmeError(
            f"Only {len(rows)} of the export's people are raters of this study, too few to describe without naming "
            f"them; give the export of this study with {FEWEST} or more."
        )
    ages = [float(row[age]) for row in rows if row.get(age, "").isdigit()]
    counts = {name: suppressed(Counter(row.get(name, "") or MISSING for row in rows)) for name in attributes}
    return Participants(
        study=study,
        count=len(rows),
        age_mean=round(fmean(ages), 1) if len(ages) >= FEWEST else None,
        age_sd=round(stdev(ages), 1) if len(ages) >= FEWEST else None,
        attributes=counts,
        age_low=int(min(ages)) if len(ages) >= FEWEST else None,
        age_high=int(max(ages)) if len(ages) >= FEWEST else None,
    )


def suppressed(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts with small ones added up under a name that names none of them."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    kept = {name: count for name, count in ordered if count >= FEWEST and name != MISSING}
    missing = {MISSING: counts[MISSING]} if MISSING in counts else {}
    rare = sum(counts.values()) - sum(kept.values()) - sum(missing.values())
    return kept | ({RARE: rare} if rare else {}) | missing


def add(folder: Path, participants: Participants) -> Path:
    """Keep the counts of a study beside those of others; the same study replaces its own."""
    return _keep(folder / FILE, read(folder), participants)


def add_raters(folder: Path, raters: RatersOfStudy) -> Path:
    """Keep whose answers count beside those of other studies; the same study replaces its own."""
    return _keep(folder / STUDIES, read_raters(folder), raters)


def read(folder: Path) -> list[Participants]:
    """The studies whose participants are described; none where there is no file."""
    return _kept(folder / FILE, Participants, " with --demographics")


def read_raters(folder: Path) -> list[RatersOfStudy]:
    """The studies whose answers are in the run; none where there is no file."""
    return _kept(folder / STUDIES, RatersOfStudy)


def _keep(file: Path, known: Sequence[_Described], entry: _Described) -> Path:
    entries = [*(other for other in known if other.study != entry.study), entry]
    return write_whole(file, json.dumps([asdict(other) for other in entries], indent=1, ensure_ascii=False))


def _kept(file: Path, kind: type[_Described], how: str = "") -> list[_Described]:
    try:
        return [kind(**entry) for entry in json.loads(file.read_text("utf-8"))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise StillmeError(f"{file} is damaged ({error}). Delete it, and close the study again{how}.") from None
