"""An audit whose judge knows the truth of every hidden pair, and errs when a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stillme.audit import Audit
from stillme.audit.building import build
from stillme.core.protocols import Judge, JudgeCapabilities, Parameters
from stillme.core.types import Assessment, Failed, Pair, Rated, Rating
from stillme.runs.control_pairs.asking import KnownPair, planned, scored
from tests.pictures import noise

AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
UNCHANGED = {"edit_success": 1.0, "skin_tone": 3.0, "race_change": 1.0, "gender_change": 1.0, "age_change": 3.0}


def truth_on(axis: str, known: KnownPair) -> float:
    """The answer that is right: the far end of the scale where something changed."""
    limits = scored([axis]).get(axis)
    if limits is None or limits.truth(known.kind, known.amount) != "changed":
        return UNCHANGED[axis]
    return 1.0 if limits.signed and known.amount < 0 else 5.0


class Knowing(Judge):
    """A judge elsewhere that answers what is true, and from some answer on what is not."""

    provider = "http://elsewhere"

    def __init__(self, *, labels: bool = False) -> None:
        super().__init__(Parameters())
        self.capabilities = JudgeCapabilities(kind="model", axes=AXES, labels=labels)
        self.truths: dict[str, KnownPair] = {}
        self.asked: list[Pair] = []
        self.wrong_from: int | None = None
        """The question from which on every change is missed."""
        self.fails: Callable[[Pair], bool] = lambda pair: False
        self.price = 0.01

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        for pair in pairs:
            self.asked.append(pair)
            failing = Failed(error="gone", retryable=False, cost=self.price) if self.fails(pair) else None
            ratings: dict[str, Rating] = {axis: failing or Rated(score=self._score(axis, pair)) for axis in AXES}
            yield Assessment(ratings=ratings, cost=self.price)

    def _score(self, axis: str, pair: Pair) -> float:
        known = self.truths.get(pair.edit)
        wrong = self.wrong_from is not None and len(self.asked) > self.wrong_from
        return UNCHANGED[axis] if known is None or wrong else truth_on(axis, known)

    def is_hidden(self, pair: Pair) -> bool:
        return pair.edit in self.truths

    @property
    def hidden(self) -> list[int]:
        """Which of its questions were about pairs of known truth, counted from 0."""
        return [place for place, pair in enumerate(self.asked) if self.is_hidden(pair)]

    def expected_dollars(self) -> float | None:
        return self.price

    def close(self) -> None:
        pass


@pytest.fixture
def portraits(tmp_path: Path) -> Path:
    """Five portraits that look like nobody: what is edited does not matter here."""
    folder = tmp_path / "portraits"
    folder.mkdir()
    rows = ["file,group,race,gender,age"]
    for index in range(5):
        noise(folder / f"p{index}.png", height=96, seed=index)
        rows.append(f"p{index}.png,{'ab'[index % 2]},Black,{['woman', 'man'][index % 2]},30s")
    (folder / "portraits.csv").write_text("\n".join(rows))
    return folder


Make = Callable[..., tuple[Audit, Knowing]]


@pytest.fixture
def make(tmp_path: Path, portraits: Path) -> Make:
    """`make(share=0.2)`: an audit of 100 questions and its judge; the same folder goes on."""

    def audit_of(
        *, name: str = "run", judge: Knowing | None = None, labels: bool = False, sections: Any = None, **chosen: Any
    ) -> tuple[Audit, Knowing]:
        judge = judge or Knowing(labels=labels)
        audit = build(
            editors=["noop"], judges={"knowing": judge}, portraits=portraits, folder=tmp_path / name, **(sections or {})
        )
        section = audit.config.judges[0].control_pairs.model_copy(update={"share": 0.2, **chosen})
        (named,) = audit.judges
        audit = replace(audit, judges=(replace(named, control_pairs=section),))
        judge.truths = {pair.key: pair.known for pair in planned(audit.judges[0], audit)}
        return audit, judge

    return audit_of
