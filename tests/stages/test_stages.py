"""The two long stages with editors and judges that misbehave, and a limited run of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from stillme.api.pipeline import Ended, RunOptions, run_stages
from stillme.core import images
from stillme.core.types import Edited, EditOutcome, Failed, Request
from stillme.editors.known import Noop
from stillme.portraits import portraits
from stillme.runs.store import Store
from stillme.runs.store.pictures import Pictures
from stillme.work.workers import EditWorker
from tests.command_lines import ran
from tests.records import asked

Write = Callable[..., Path]
ALL = ("edit", "judge", "estimate")


def outcomes(folder: Path) -> dict[str, int]:
    with Store.reading(folder) as store:
        return dict(
            store.query(
                "SELECT outcome || CASE final WHEN 1 THEN '' ELSE ' for now' END, COUNT(*) FROM edit GROUP BY 1"
            )
        )


def test_a_refusal_is_a_finding_and_is_not_asked_again(write_audit: Write):
    folder = write_audit('use = "moody"')
    summary = run_stages(folder, ALL)
    refused = summary.tallies[0].counts["refused"]
    assert 0 < refused < 12
    assert summary.tallies[1].total == 12 - refused, "only what has a picture is judged"
    assert run_stages(folder, ("edit",)).tallies[0].already == 12


def test_an_outage_is_not_a_refusal_and_is_retried_by_the_next_run(write_audit: Write):
    folder = write_audit('use = "flaky"\nparameters = { failures = 2 }', extra="[executor]\nattempts = 2")
    first = run_stages(folder, ("edit",))
    assert (first.totals.to_retry, outcomes(folder)) == (12, {"failed for now": 12})
    # The plugin forgets between runs; two failures are again more than two attempts allow.
    again = run_stages(folder, ("edit",))
    assert (again.totals.to_retry, outcomes(folder)) == (12, {"failed for now": 24})


def test_a_passing_failure_is_retried_within_the_run(write_audit: Write):
    folder = write_audit('use = "flaky"\nparameters = { failures = 2, cost = 0.01 }')
    summary = run_stages(folder, ("edit",))
    assert (summary.totals.to_retry, outcomes(folder)) == (0, {"edited": 12})
    assert summary.tallies[0].retried == 24
    assert round(summary.totals.cost, 2) == 0.36, "failed attempts cost too"


def test_an_editor_that_raises_has_failed_and_refused_nothing(write_audit: Write):
    raises = 'use = "moody"\nparameters = { raises = true }'
    # Fewer failures in a row than the stage would pause for.
    folder = write_audit(raises, prompts='["O-01"]', extra="[executor]\nattempts = 1")
    summary = run_stages(folder, ALL)
    assert outcomes(folder) == {"failed for now": 6}
    assert summary.totals.to_retry == 6
    with Store.reading(folder) as store:
        assert {message for (message,) in store.query("SELECT message FROM edit")} == {"RuntimeError: out of memory"}


def test_a_budget_stops_the_run_and_the_next_one_goes_on(write_audit: Write):
    editor = 'use = "flaky"\nparameters = { failures = 0, cost = 1.0 }'
    first = run_stages(write_audit(editor, extra="[budget]\ndollars = 3"), ALL)
    assert first.ended is Ended.OVER_BUDGET
    assert 3 <= first.tallies[0].counts["edited"] < 12
    assert "of the $3.00" in first.tallies[0].reason
    assert not first.tables
    second = run_stages(write_audit(editor), ALL)
    assert second.ended is Ended.COMPLETE
    assert second.tallies[0].already == first.tallies[0].counts["edited"]
    assert second.totals.cost == 12.0


def test_a_judge_that_abstains_is_counted_and_never_scored(write_audit: Write):
    folder = write_audit(judge='use = "scripted"\nparameters = { share = 0.5 }')
    run_stages(folder, ALL)
    with Store.reading(folder) as store:
        found = dict(store.query("SELECT outcome, COUNT(score) FROM judgement GROUP BY 1"))
    assert found["abstained"] == 0
    assert found["rated"] > 0
    assert "abstained" in (folder / "tables" / "estimates.csv").read_text()


def test_repeated_ratings_are_kept_one_by_one(write_audit: Write):
    folder = write_audit(judge='use = "scripted"\nepochs = 3')
    summary = run_stages(folder, ALL)
    assert summary.tallies[1].counts["judged"] == 36
    with Store.reading(folder) as store:
        assert dict(store.query("SELECT epoch, COUNT(*) FROM assessment GROUP BY 1")) == {0: 12, 1: 12, 2: 12}


def test_one_request_of_each_editor_is_made_judged_and_shown(write_audit: Callable[..., Path]):
    folder = write_audit()
    stages = ("edit", "judge", "estimate", "report")
    summary = run_stages(folder, stages, RunOptions(limit=1))
    assert summary.tallies[0].counts == {"edited": 1}
    assert all(sum(tally.counts.values()) == 1 for tally in summary.tallies[1:])
    edit, *answers = summary.samples
    assert "pixels" in edit
    assert answers
    assert summary.report is None
    again = run_stages(folder, stages, RunOptions(limit=1))
    assert not any(tally.counts for tally in again.tallies), "the same request again"
    assert again.samples == summary.samples
    whole = run_stages(folder, stages)
    assert whole.tallies[0].counts == {"edited": 11}
    assert whole.report is not None


def test_the_command_line_shows_it(write_audit: Callable[..., Path]):
    shown = ran("run", write_audit(), "--limit", 1)
    assert "pixels" in shown.output
    assert "stillme run" in shown.output


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
    return [asked(editor, who) for who in portraits()[:4]]


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
