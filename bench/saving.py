"""A rater's 480 answers, each on disk before it is acknowledged: ours beside Potato's save path.

Both in one process and without a browser, on the same disk. Ours checks the place and the page, and commits one row;
Potato 2 writes everything that the rater ever said anew. Potato is GPL, so it runs in an interpreter of its own:

    python -m venv peers && peers/bin/pip install potato-annotation
    STILLME_PEERS=peers/bin/python python -m bench saving
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

ITEMS, SIDES, QUESTIONS = 48, 2, 5
ANSWERS = ITEMS * SIDES * QUESTIONS


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-saving-") as scratch:
        ours = _ours(Path(scratch) / "ours")
        print(f"stillme    {_in_words(ours)}")
        peers = os.environ.get("STILLME_PEERS")
        if not peers:
            print("Potato     not measured: STILLME_PEERS names no interpreter")
            return
        asked = [peers, __file__, str(Path(scratch) / "theirs")]
        done = subprocess.run(asked, capture_output=True, text=True)
        if "No module named 'potato'" in done.stderr:
            print(f"Potato     not measured: {peers} has no potato-annotation")
            return
        done.check_returncode()
        theirs = json.loads(done.stdout.splitlines()[-1])
        print(f"Potato     {_in_words(theirs)}")
    # Here, because another interpreter runs this file for the peer.
    from bench._figures import note

    for name, part in (("an answer saved", slice(None)), ("the last 48 answers", slice(-48, None))):
        note(__name__, name, _middle(ours[part]), "ms", peer="Potato's save path", of=_middle(theirs[part]))


def _ours(folder: Path) -> list[float]:
    from stillme.study.answers import SaveRequest, save_answers
    from stillme.study.assignment import Held
    from stillme.study.opening import open_study
    from tests.study.studies import write_study
    from tests.study.test_assignment import all_answers, arrive, claim

    write_study(folder, tasks=1, per_task=ITEMS, raters=1, checks=False)
    with open_study(folder) as study:
        who = arrive(study, "rater")
        held = claim(study, who, time.time())
        assert isinstance(held, Held)
        said = all_answers(study, held)
        assert len(said) == ANSWERS
        return _timed(lambda n: save_answers(study, who, SaveRequest(epoch=held.epoch, answers=[said[n]])))


def _theirs(folder: Path) -> list[float]:
    from potato.item_state_management import Label  # pyright: ignore[reportMissingImports]
    from potato.phase import UserPhase  # pyright: ignore[reportMissingImports]
    from potato.user_state_management import InMemoryUserState  # pyright: ignore[reportMissingImports]

    state, places = InMemoryUserState("rater"), list(product(range(ITEMS), range(SIDES), range(QUESTIONS)))
    state.advance_to_phase(UserPhase.ANNOTATION, "items")

    def save(n: int) -> None:
        item, side, question = places[n]
        state.add_label_annotation(f"item {item}", Label(f"question {question} of side {side}", "3"), "3")
        state.save(str(folder))

    return _timed(save)


def _timed(save: Callable[[int], object]) -> list[float]:
    """Milliseconds of each answer."""
    taken: list[float] = []
    for number in range(ANSWERS):
        begun = time.perf_counter()
        save(number)
        taken.append(1000 * (time.perf_counter() - begun))
    return taken


def _in_words(taken: list[float]) -> str:
    return f"median {_middle(taken):5.2f} ms; of the last 48 answers {_middle(taken[-48:]):5.2f} ms"


def _middle(taken: list[float]) -> float:
    return sorted(taken)[len(taken) // 2]


if __name__ == "__main__":
    print(json.dumps(_theirs(Path(sys.argv[1]))))
