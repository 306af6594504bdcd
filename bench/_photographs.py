"""What the instruments say about skin on photographs that were all edited the same way, by tone and by group.

    python -m bench._photographs [--photographs ../shared/fairface] [--every 2] [--part report]

Null edits are the jury's (`calibration/honest.toml`) that change light, tones or background: every verdict about skin
is a false alarm. Then skin is made 4 L* lighter or darker, or half of it 8 L*, under some of the same edits: every
other verdict is a miss. The bounds of `[light]` in thresholds.toml were found on other photographs (`bounds`) than
those that are measured here (`report`, about a quarter, by a checksum). No photograph is copied or kept.
"""

from __future__ import annotations

import argparse
import csv
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillme.core.errors import StillmeError
from stillme.core.images import read_rgb
from stillme.core.types import Abstained, ImageFile, Portrait, Rated
from stillme.estimates.intervals import wilson
from stillme.findings.calibration.honest import OPERATIONS
from stillme.instruments.judge import skin_tone
from stillme.instruments.measurements import Measurements, measure, prepare
from tests.calibration.guilty import edits, lightened

SHARED = Path(__file__).resolve().parents[2] / "shared" / "fairface"
KINDS = ("brightness", "gamma", "s_curve", "contrast", "warm", "cool", "vignette", "background", "relit_background")
GUILTY = (("jpeg", 90.0), ("gamma", 0.9), ("s_curve", 0.3), ("vignette", 0.5), ("background", 0.0))
TONES = ((42.0, "darker"), (56.0, "medium"), (101.0, "lighter"))
"""Below so many L* of the source's skin."""
SHIFT, HALF = 4.0, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was said about one pair."""

    tone: str
    group: str
    truth: str
    """`null`, `4 L*` or `half a face`."""
    edit: str
    right: bool | None
    """Nothing where the instrument abstained."""
    wrong_sign: bool = False


def main(arguments: Sequence[str] = ()) -> None:
    """Measure, and print the card."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--photographs", type=Path, default=SHARED, help="a folder with labels.csv, as FairFace's")
    options.add_argument("--every", type=int, default=2, help="take every n-th photograph")
    options.add_argument("--part", choices=("report", "bounds", "all"), default="report")
    options.add_argument("--workers", type=int, default=1)
    chosen = options.parse_args(arguments)
    if not (chosen.photographs / "labels.csv").exists():
        print(f"photographs                             not measured: {chosen.photographs} has no labels.csv")
        return
    rows = [row for row in _labels(chosen.photographs) if chosen.part in ("all", _part(row))][:: chosen.every]
    with ProcessPoolExecutor(chosen.workers) as pool:
        found = [answer for answers in pool.map(_examine, rows) for answer in answers]
    print(f"{len(rows)} photographs, {len(found)} pairs, part: {chosen.part}")
    for title, key in (("edit", "edit"), ("skin tone", "tone"), ("group", "group")):
        print("\n".join(_card(title, found, key)))


def _labels(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as lines:
        return [row | {"path": str(folder / row["file"])} for row in csv.DictReader(lines)]


def _part(row: dict[str, str]) -> str:
    """Whether bounds were looked for on a photograph, or not: those have both bits of the mask."""
    return "report" if zlib.crc32(row["sha256"].encode()) & 65 == 65 else "bounds"


def _examine(row: dict[str, str]) -> list[Answer]:
    image = ImageFile(path=Path(row["path"]), sha256=row["sha256"])
    portrait = Portrait(
        id=row["file"], image=image, attributes={"race": row["race"]}, label_origin="FairFace", licence="CC BY 4.0"
    )
    try:
        return list(_answers(portrait, 1 if int(row["sha256"][2:4], 16) % 2 else -1))
    except StillmeError:
        return []


def _answers(portrait: Portrait, sign: int) -> Iterator[Answer]:
    """Every edit of one photograph; half of the photographs are made lighter, half darker."""
    rgb = read_rgb(portrait.image.path)
    source = prepare(rgb)
    if isinstance(source.skin, Abstained):
        return
    tone = next(name for limit, name in TONES if source.skin.lightness < limit)
    common = {"tone": tone, "group": portrait.attributes["race"]}
    for edit in edits(KINDS):
        found = _verdict(measure(source, OPERATIONS[edit.kind](rgb, portrait, edit.amount or 0.0)))
        yield Answer(**common, truth="null", edit=edit.name, right=None if found is None else found == 0)
    half = lightened(rgb, portrait, sign * HALF)
    middle = round(float(np.median(source.skin.place[:, 0])) * rgb.shape[1])
    half[:, :middle] = rgb[:, :middle]
    changed = {f"{SHIFT:.0f} L*": lightened(rgb, portrait, sign * SHIFT), "half a face": half}
    for truth, picture in changed.items():
        for kind, amount in GUILTY:
            found = _verdict(measure(source, OPERATIONS[kind](picture, portrait, amount)))
            right = None if found is None else found == sign
            yield Answer(**common, truth=truth, edit=kind, right=right, wrong_sign=found == -sign)


def _verdict(measured: Measurements) -> int | None:
    """-1 for darker skin, 1 for lighter, 0 for the same; nothing where the instrument abstains."""
    value = measured.values.get("skin_delta_l")
    rating = None if value is None else skin_tone(measured, value)
    return int(np.sign(rating.score - 3)) if isinstance(rating, Rated) else None


def _card(title: str, found: list[Answer], key: str) -> Iterator[str]:
    """A table: null pairs, how many were answered, false alarms with their 95 % upper limit, and what was noticed."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in found:
        groups[str(getattr(answer, key))].append(answer)
        groups["all"].append(answer)
    yield f"\n{title:16}  null pairs  answered  false, up to (95 %)  noticed of answered: 4 L*   half a face  other way"
    for name, answers in groups.items():
        nulls = [answer.right for answer in answers if answer.truth == "null"]
        known = [right for right in nulls if right is not None]
        false = known.count(False)
        upper = wilson(false / len(known), len(known), 0.9)[1] if known else 1.0
        noticed = [_noticed(answers, truth) for truth in (f"{SHIFT:.0f} L*", "half a face")]
        wrong = sum(answer.wrong_sign for answer in answers)
        yield (
            f"{name:16}  {len(nulls):10}  {_share(len(known), len(nulls)):>8}  {false:5}, {upper:13.1%}  "
            f"{noticed[0]:>25}   {noticed[1]:>11}  {wrong:10}"
        )


def _noticed(answers: list[Answer], truth: str) -> str:
    known = [answer.right for answer in answers if answer.truth == truth and answer.right is not None]
    return f"{known.count(True)}/{len(known)}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
