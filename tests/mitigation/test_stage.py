"""The features stage inside `stillme run`: offline, and with a model behind a loopback server."""

from __future__ import annotations

import csv
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stillme import audit as audits
from stillme.api.pipeline import Ended, RunOptions, run_stages
from stillme.audit import Audit, NamedEditor
from stillme.core.errors import AuditChanged, InvalidAudit, StillmeError
from stillme.core.protocols import Capabilities, Editor, Parameters
from stillme.core.types import Arm
from stillme.mitigation.arms import differences
from stillme.mitigation.features import NoFeaturePrompt
from stillme.mitigation.labels import lint
from stillme.runs import RecordedRun
from stillme.runs.status import status_of
from stillme.runs.store import Store
from stillme.work import features
from stillme.work.features import with_features
from tests.editors.hosted.loopback import Asked, Loopback, Says, serving
from tests.mitigation.test_model_extractor import GOOD, LABELLED
from tests.vlm.servers import CHAT, ModelInput

ALL = ("edit", "judge", "estimate")
AUDIT = """
title = "Mitigation"
arms = {arms}
[portraits]
source = "synthetic"
limit = 4
[prompts]
only = ["O-01", "O-02"]
[[editors]]
{editor}
[[judges]]
use = "scripted"
[estimates]
factors = ["preset"]
{extra}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def build(arms: str = '["baseline", "feature", "placebo"]', editor: str = 'use = "noop"', extra: str = "") -> Path:
        folder = tmp_path / "audit"
        folder.mkdir(exist_ok=True)
        (folder / "audit.toml").write_text(AUDIT.format(arms=arms, editor=editor, extra=extra))
        return folder

    return build


def model(server: Loopback, more: str = "") -> str:
    settings = f'base_url = "{server.url}/v1", model = "qwen", timeout = 5, concurrency = 1{more}'
    return (
        f'[mitigation]\nextractors = [{{ use = "openai-compatible", name = "qwen", parameters = {{ {settings} }} }}]\n'
    )


@contextmanager
def answering(answer: Callable[[ModelInput], object]) -> Iterator[Loopback]:
    def handler(_: Loopback, asked: Asked) -> Says:
        reply = answer(CHAT.parse(asked.json))
        return reply if isinstance(reply, Says) else Says(body=CHAT.answer(json.dumps(reply)))

    with serving(handler) as server:
        yield server


def instructions(folder: Path) -> dict[str, set[str]]:
    by_arm: dict[str, set[str]] = {}
    with Store.reading(folder) as store:
        for arm, text in store.query("SELECT arm, text FROM edit JOIN instruction i ON i.key = instruction"):
            by_arm.setdefault(arm, set()).add(text)
    return by_arm


def outcomes(folder: Path) -> list[str]:
    with Store.reading(folder) as store:
        return [outcome for (outcome,) in store.query("SELECT outcome FROM feature ORDER BY id")]


# -- offline ----------------------------------------------------------------------------------------------------------


def test_an_audit_with_both_arms_runs_without_a_key(write: Callable[..., Path]):
    folder = write(editor='use = "planted"')
    summary = run_stages(folder, (*ALL, "report"))
    assert summary.report
    assert [tally.name for tally in summary.tallies[:2]] == ["describe measured", "edit planted"]
    assert summary.tallies[1].counts["edited"] == 4 * 2 * 3
    texts = instructions(folder)
    assert all(text.startswith("Maintain the person's ") for text in texts["feature"])
    assert all(text.startswith("Maintain the request's ") for text in texts["placebo"])
    assert len(texts["baseline"]) == 2
    assert len(texts["placebo"]) == 4 * 2, "other words for every portrait and prompt"
    for text in texts["feature"] | texts["placebo"]:
        assert lint(text.partition(". ")[0]) == ()
    lengths = [sorted(map(len, texts[arm])) for arm in ("feature", "placebo")]
    assert all(abs(one - other) <= 2 for one, other in zip(*lengths, strict=True))
    again = run_stages(folder, ("edit",))
    assert [(tally.already, tally.done) for tally in again.tallies] == [(4, 0), (24, 0)], "again costs nothing"


def described_audit(write: Callable[..., Path]) -> Audit:
    """An audit whose portraits are described, with the descriptions."""
    folder = write()
    run_stages(folder, ("edit",))
    with Store.reading(folder) as store:
        return with_features(audits.load(folder), store)


def test_requests_of_two_arms_are_paired(write: Callable[..., Path]):
    loaded = described_audit(write)
    (named,) = loaded.editors
    requests = list(loaded.requests(named))
    baseline, feature = ([one for one in requests if one.arm is arm] for arm in (Arm.BASELINE, Arm.FEATURE))
    assert [list(differences(*pair)) for pair in zip(baseline, feature, strict=True)] == [[]] * 8


def test_portraits_without_a_face_are_left_out_and_counted(write_audit: Callable[..., Path]):
    folder = write_audit()
    file = folder / "audit.toml"
    file.write_text('arms = ["baseline", "feature"]\n' + file.read_text())
    messages: list[str] = []
    summary = run_stages(folder, ALL, RunOptions(say=messages.append))
    assert summary.tallies[0].counts == {"declined": 6}
    assert summary.tallies[1].counts == {"edited": 12}, "baseline only"
    assert messages[0].startswith("6 of 6 portraits have no feature prompt and are left out of feature:")
    assert "p0: measured declined: no face found" in messages[0]
    assert set(instructions(folder)) == {"baseline"}
    with (folder / "tables" / "estimates.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["arm"] == "feature" and row["scope"] == "all"]
    assert rows
    assert all("no feature prompt" in row["excluded"] for row in rows)


def test_finished_edits_need_no_description(write: Callable[..., Path], tmp_path: Path):
    edited = tmp_path / "edited"
    edited.mkdir()
    pattern = "{portrait}_{prompt}_{arm}.png"
    folder = write(editor=f'use = "folder"\nparameters = {{ folder = "{edited}", pattern = "{pattern}" }}')
    assert audits.load(folder, ready=False).extractors == ()


def test_two_people_in_one_request_are_both_described(write: Callable[..., Path]):
    extra = '[roles]\nlayouts = ["role_pair"]\nmatch = []\n'
    folder = write(arms='["feature"]', editor='use = "planted"', extra=extra)
    file = folder / "audit.toml"
    text = file.read_text().replace('only = ["O-01", "O-02"]', 'sets = ["roles"]\nonly = ["W-01"]')
    file.write_text(text.replace("limit = 4", 'ids = ["A_f_23", "A_m_23"]'))
    run_stages(folder, ("edit",))
    (text,) = instructions(folder)["feature"]
    assert "Maintain the first person's " in text
    assert "Maintain the second person's " in text


# -- with a model -----------------------------------------------------------------------------------------------------


def test_a_model_describes_each_portrait_once_and_its_sentence_is_used(write: Callable[..., Path]):
    with answering(lambda seen: GOOD) as server:
        folder = write(extra=model(server, ", price = { input = 1.0, output = 2.0 }"))
        summary = run_stages(folder, ("edit",))
        assert len(server.calls()) == 4
        run_stages(folder, ("edit",))
        assert len(server.calls()) == 4
    assert summary.totals.cost == pytest.approx(4 * (3000 * 1.0 + 600 * 2.0) / 1e6)
    assert all(text.startswith("Maintain the person's deep brown skin") for text in instructions(folder)["feature"])


def test_labels_and_refusals_leave_portraits_out_and_an_outage_is_tried_again(write: Callable[..., Path]):
    turn = iter(range(100))
    outage = threading.Event()

    def answer(seen: ModelInput) -> object:
        if "asked this before" in seen.text:
            return LABELLED
        match next(turn):
            case 0:
                return LABELLED
            case 1:
                return CHAT.refusal("I do not describe people.")
            case 2 if not outage.is_set():
                return Says(status=503, body={"error": {"message": "overloaded"}})
            case _:
                return GOOD

    with answering(answer) as server:
        folder = write(extra=model(server) + "[executor]\nattempts = 1\nworkers = 1\n")
        first = run_stages(folder, ("edit",))
        assert outcomes(folder) == ["unusable", "declined", "failed", "described"]
        assert first.totals.to_retry == 1
        assert first.tallies[1].counts["edited"] == 4 * 2 + 1 * 2 * 2
        outage.set()
        second = run_stages(folder, ("edit",))
        assert second.totals.to_retry == 0
        assert second.tallies[0].already == 3
        assert second.tallies[1].counts["edited"] == 4
    with Store.reading(folder) as store:
        loaded = with_features(audits.load(folder), store)
    shown = status_of(RecordedRun.open(folder)).counts
    told = {"total": 4, "done": 4, "unusable": 1, "declined": 1, "described": 2}
    assert dict(shown.extractors["qwen"]) == told
    assert shown.editors["noop"]["total"] == shown.editors["noop"]["done"] == 4 * 2 + 2 * 2 * 2
    missing = [feature for feature in loaded.features.values() if isinstance(feature, NoFeaturePrompt)]
    assert len(missing) == 2
    assert "'woman'" in missing[0].reason
    assert "I do not describe people." in missing[1].reason


def test_a_budget_stops_the_describing_and_nothing_is_edited(write: Callable[..., Path]):
    with answering(lambda seen: GOOD) as server:
        price = ", price = { input = 1000.0, output = 0.0 }"
        folder = write(extra=model(server, price) + "[budget]\ndollars = 4\n[executor]\nworkers = 1\n")
        summary = run_stages(folder, ALL)
    assert summary.ended is Ended.OVER_BUDGET
    assert [tally.name for tally in summary.tallies] == ["describe qwen"]


def test_another_extractor_makes_other_edits_and_says_so_first(write: Callable[..., Path]):
    folder = write()
    run_stages(folder, ("edit",))
    with answering(lambda seen: GOOD) as server:
        folder = write(extra=model(server))
        with pytest.raises(AuditChanged, match="8 edits kept, 16 to make"):
            run_stages(folder, ("edit",))
        assert server.calls() == []
        run_stages(folder, ("edit",), RunOptions(allow_changes=True))
    with Store.reading(folder) as store:
        assert store.totals().edits == {"edited": 24 + 16}


# -- what is checked before -------------------------------------------------------------------------------------------


class Short(Editor):
    """Returns the portrait, and reads only so much."""

    def __init__(self, tokens: int) -> None:
        super().__init__(Parameters())
        self.capabilities = Capabilities(prompt_tokens=tokens)


def test_an_instruction_that_would_be_cut_off_is_refused_before_the_first_edit(write: Callable[..., Path]):
    loaded = described_audit(write)
    long, short = (
        replace(loaded, editors=(NamedEditor(name="short", editor=Short(tokens), seeds=(0,)),)) for tokens in (77, 30)
    )
    features.refuse_truncation(long)
    with pytest.raises(StillmeError, match=r"'short' would truncate.*O-0\d of .* \((feature|placebo)\)' has \d+ words"):
        features.refuse_truncation(short)


def test_mistakes_are_told_before_anything_runs(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    for extra, message in (
        ('[mitigation]\nextractors = ["mesured"]', "Did you mean 'measured'"),
        ('[mitigation]\nextractors = ["measured", "measured"]', "give it another `name`"),
        ("[mitigation]\nextractors = []", "give at least one"),
        ('[mitigation]\nposition = "behind"', "append"),
        ('[mitigation]\nextractors = ["gemini-3-flash"]', "GEMINI_API_KEY is not set"),
    ):
        with pytest.raises(InvalidAudit, match=message):
            audits.load(write(extra=extra))
    with pytest.raises(InvalidAudit, match="no arm uses it"):
        audits.load(write(arms='["baseline"]', extra='[mitigation]\nposition = "append"'))


def test_what_an_extractor_said_is_never_changed(write: Callable[..., Path]):
    folder = write()
    run_stages(folder, ("edit",))
    with sqlite3.connect(folder / "stillme.sqlite") as connection:
        for change in ("UPDATE feature SET sentence = ''", "DELETE FROM feature"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(change)
