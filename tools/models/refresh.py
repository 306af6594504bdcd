"""Measure the instruments again after a change of their code, thresholds or weights: one command for every number.

    python tools/models/refresh.py PATH/TO/FAIRFACE            # cards, calibration, docs/instruments.md
    python tools/models/refresh.py PATH/TO/FAIRFACE --train    # retrain the heads first

Writes `instruments/cards/measured.toml` (with the hash of the code it belongs to, which a test holds against the code),
`calibration/shipped/KEY.json` and the tables of `docs/instruments.md`. No picture is copied into the repository.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "src" / "stillme" / "findings" / "calibration" / "shipped"
COLUMNS = ("id", "file", "race", "gender", "age", "licence", "label_origin")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="the folder with labels.csv")
    options.add_argument("--train", action="store_true", help="retrain the heads first")
    options.add_argument("--every", type=int, default=3, help="take only every n-th photograph (default 3)")
    options.add_argument("--kept", type=Path, help="a folder for the calibration's rows, so that it can be resumed")
    chosen = options.parse_args()
    if chosen.train:
        run("train_heads.py", chosen.data)
    run("validate.py", chosen.data, "--every", chosen.every)
    with tempfile.TemporaryDirectory() as scratch:
        calibrate(chosen.data.resolve(), chosen.every, Path(scratch), chosen.kept or Path(scratch) / "calibration")
    run("numbers_page.py")


def run(script: str, *arguments: object) -> None:
    subprocess.run([sys.executable, str(HERE / script), *map(str, arguments)], check=True)


def calibrate(data: Path, every: int, scratch: Path, kept: Path) -> None:
    """Calibrate on renders, on the planted editor and on photographs, and ship the result alone."""
    photographs = scratch / "photographs"
    listed(data, every, photographs)
    command = [sys.executable, "-m", "stillme", "calibrate", "instruments", "--photographs", str(photographs)]
    home = os.environ | {"STILLME_HOME": str(scratch / "home")}
    # Ends with 1 where an axis fails, which is a result.
    ended = subprocess.run([*command, "--out", str(kept)], env=home, check=False).returncode
    found = list((scratch / "home" / "calibrations").glob("*.json"))
    if ended not in (0, 1) or len(found) != 1:
        raise SystemExit("The calibration did not end; run the same command again.")
    SHIPPED.mkdir(exist_ok=True)
    for old in SHIPPED.glob("*.json"):
        old.unlink()
    (SHIPPED / found[0].name).write_bytes(found[0].read_bytes())


def listed(data: Path, every: int, folder: Path) -> None:
    """A portrait set of every n-th photograph, for as long as the calibration takes."""
    folder.mkdir(parents=True)
    with (data / "labels.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))[::every]
    with (folder / "portraits.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for row in rows:
            name = row["file"].replace("/", "_")
            shutil.copyfile(data / row["file"], folder / name)
            labels = row["race"], row["gender"], row["age"]
            writer.writerow([Path(name).stem, name, *labels, "CC BY 4.0", "FairFace annotation"])


if __name__ == "__main__":
    main()
