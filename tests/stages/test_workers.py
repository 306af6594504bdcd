from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stillme.core import images
from stillme.core.types import Arm, Edited, EditOutcome, Failed, Prompt, Request
from stillme.editors.known import Noop
from stillme.portraits import portraits
from stillme.runs.store.pictures import Pictures
from stillme.work.workers import EditWorker

PROMPT = Prompt(id="O-01", text="A suit, please.", category="occupational", subcategory="authority")


class Watching(Noop):
    """Counts the pictures on disk before it makes another, and breaks after `most`."""

    def __init__(self, pictures: Pictures, most: int) -> None:
        super().__init__(Noop.Parameters())
        self._pictures, self._most = pictures, most
        self.seen: list[int] = []

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        for number in range(len(requests)):
            self.seen.append(len(list(self._pictures.names())))
            if number == self._most:
                raise MemoryError("no room")
            yield Edited(image=images.encode_png(np.full((8, 8, 3), number, dtype=np.uint8)))


def requests(editor: Noop) -> list[Request]:
    return [
        Request(portraits=(who,), prompt=PROMPT, arm=Arm.BASELINE, instruction="", editor=editor.spec, seed=0)
        for who in portraits()[:4]
    ]


def test_a_picture_is_on_disk_before_the_next_of_its_batch_is_made(tmp_path: Path):
    editor = Watching(pictures := Pictures(tmp_path), most=9)
    kept = EditWorker(editor, pictures).perform(requests(editor))
    assert editor.seen == [0, 1, 2, 3]
    assert all(isinstance(one.outcome, Edited) and one.outcome.effective["flags"] == ["black"] for one in kept)


def test_an_editor_that_breaks_in_the_middle_of_a_batch_keeps_what_it_made(tmp_path: Path):
    editor = Watching(pictures := Pictures(tmp_path), most=2)
    kept = EditWorker(editor, pictures).perform(requests(editor))
    assert [type(one.outcome) for one in kept] == [Edited, Edited, Failed, Failed]
    assert all(one.image and pictures.intact(one.image) for one in kept[:2])


def test_an_editor_that_is_paid_and_raises_may_have_been_charged(tmp_path: Path):
    class Paid(Watching):
        def expected_dollars(self) -> float | None:
            return 0.04

    for kind, effective in ((Watching, {}), (Paid, {"cost": "unknown"})):
        editor = kind(pictures := Pictures(tmp_path), most=0)
        (failed, *_) = EditWorker(editor, pictures).perform(requests(editor))
        assert isinstance(failed.outcome, Failed)
        assert dict(failed.outcome.effective) == effective
