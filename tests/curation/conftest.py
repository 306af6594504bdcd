from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stillme.curation.measuring import check_missing
from stillme.curation.pools import Pools, SampleOptions, load_pools, sample
from stillme.curation.sources import open_source
from tests.pictures import encoded

RENDERS = Path(str(files("stillme.portraits").joinpath("data")))


def draw_renders(folder: Path, *, pools: int = 3, only: tuple[str, ...] = ("A", "B")) -> Pools:
    """Candidates over preset × gender presentation; the six ages are what pools are drawn from."""
    wanted = SampleOptions(by=("preset", "gender_presentation"), only={"preset": only}, pools=pools)
    drawn = sample(open_source(str(RENDERS)), folder, wanted)
    check_missing(drawn)
    return drawn


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "pools"
    draw_renders(folder)
    return folder


@pytest.fixture
def pools(drawn: Path, tmp_path: Path) -> Pools:
    """Twelve rendered candidates in four cells, already looked at; a copy of this test's own."""
    return load_pools(Path(shutil.copytree(drawn, tmp_path / "pools")))


def picture(shade: int, *, mode: str = "RGB", kind: str = "PNG", **options: object) -> bytes:
    """A plain picture whose bytes differ by shade."""
    pixels = Image.fromarray(np.full((72, 80, 3), shade % 256, dtype=np.uint8))
    pixels.putpixel((shade % 80, shade // 256 % 72), (255, 0, 0))
    return encoded(pixels.convert(mode), kind, **options)


def write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


FAIRFACE_AGES = ("3-9", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70")
FAIRFACE_RACES = ("White", "Black", "East Asian", "Southeast Asian", "Indian", "Middle Eastern", "Latino_Hispanic")


@pytest.fixture
def fairface(tmp_path: Path) -> Callable[..., Path]:
    """A folder in FairFace's published layout: two pictures of every combination, one in each split."""

    def make(**changes: str) -> Path:
        folder = tmp_path / "FairFace"
        shade = 0
        for split in ("train", "val"):
            (folder / split).mkdir(parents=True)
            rows: list[dict[str, str]] = []
            for race, gender, age in product(FAIRFACE_RACES, ("Male", "Female"), FAIRFACE_AGES):
                shade += 1
                file = f"{split}/{len(rows) + 1}.jpg"
                (folder / file).write_bytes(picture(shade, kind="JPEG", quality=95))
                labels = {"age": age, "gender": gender, "race": race, "service_test": "True"}
                rows.append({"file": file, **labels, **changes})
            write_table(folder / f"fairface_label_{split}.csv", rows)
        return folder

    return make
