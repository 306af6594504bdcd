"""The stress check: how far scores move when the same pair is shown in another form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from stillme.core import images, registry
from stillme.core.protocols import Judge, JudgeCapabilities, Parameters
from stillme.core.types import Abstained, Assessment, Pair, Rated
from stillme.findings.calibration.records import Calibration, read
from stillme.findings.calibration.records import stress_table as table
from stillme.findings.calibration.trials import stress

AXES = ("edit_success", "skin_tone", "gender_change")
PAIRS = 3


class ServerParameters(Parameters):
    """Where it is."""

    unkeyed: ClassVar[frozenset[str]] = frozenset({"base_url"})
    base_url: str = "here"


class Looking(Judge):
    """A judge whose score follows from the pictures: it abstains without one, unless it is careless."""

    Parameters = ServerParameters
    capabilities = JudgeCapabilities(kind="model", axes=AXES)
    asked: ClassVar[list[Pair]] = []
    careless: ClassVar[bool] = False

    def __init__(self, parameters: ServerParameters) -> None:
        super().__init__(parameters)
        self.off = 1 if parameters.base_url == "elsewhere" else 0

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        for pair in pairs:
            self.asked.append(pair)
            before, after = (images.read_rgb(picture.path).astype(float) for picture in (pair.sources[0], pair.edited))
            blind = after.std() < 1 or (
                after.std() > 70 and abs(np.corrcoef(after[:-1].ravel(), after[1:].ravel())[0, 1]) < 0.1
            )
            if blind and not self.careless:
                yield Assessment(ratings=dict.fromkeys(AXES, Abstained(reason="nothing to see")))
                continue
            lighter = float(np.sign(round(after.mean() - before.mean())))
            scores = {"edit_success": 4, "skin_tone": 3 + lighter + self.off, "gender_change": 2}
            yield Assessment(ratings={axis: Rated(score=score) for axis, score in scores.items()})


@pytest.fixture(autouse=True)
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    build = registry.build

    def built(kind: Any, use: str, parameters: Any, **more: Any) -> Any:
        ours = use == "looking"
        return Looking(ServerParameters.model_validate(parameters)) if ours else build(kind, use, parameters, **more)

    monkeypatch.setattr(registry, "build", built)
    Looking.asked.clear()
    Looking.careless = False


def test_a_judge_that_looks_moves_only_where_the_server_does(tmp_path: Path):
    moved = stress("looking", {}, tmp_path, pairs=PAIRS, second="elsewhere")
    skin = moved["skin_tone"]
    assert skin["re-encoded"].mean == pytest.approx(0, abs=0.34)
    assert skin["resized"].mean == pytest.approx(0, abs=0.34)
    assert skin["swapped"].mean == 0.0, "lighter becomes darker, which is the same answer"
    assert skin["second server"].mean == 1.0
    assert (skin["no picture"].scored, skin["noise"].scored) == (0, 0)
    assert moved["edit_success"]["swapped"].mean is None, "another question, when the pictures are swapped"
    assert "second server" in "\n".join(table(moved))


def test_a_judge_that_scores_what_it_cannot_see_is_exposed(tmp_path: Path):
    Looking.careless = True
    moved = stress("looking", {}, tmp_path, pairs=PAIRS)
    assert moved["skin_tone"]["noise"].scored == PAIRS
    assert f"scored {PAIRS} of {PAIRS}" in "\n".join(table(moved))


def test_what_was_asked_is_not_paid_for_again_and_the_record_reads_back(tmp_path: Path):
    first = stress("looking", {}, tmp_path, pairs=PAIRS)
    asked = len(Looking.asked)
    assert asked == 6 * PAIRS
    assert stress("looking", {}, tmp_path, pairs=PAIRS) == first
    assert len(Looking.asked) == asked
    kept = Calibration(
        judge="looking", key="", limits="", portraits="", pairs=0, axes={}, verdicts={}, by_tone={}, stress=first
    )
    assert read(json.loads(json.dumps(kept.as_json()))) == kept
