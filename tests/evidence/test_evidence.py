"""Bundles: sealed the same from the same rows, and consistent only if every number follows from them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stillme.audit.design import assessment_key
from stillme.core import registry
from stillme.core.errors import StillmeError
from stillme.core.files import SUMS, sums_of
from stillme.core.types import Assessment, Failed, Rating, Refused, Request
from stillme.findings.evidence import Verification, opened_bundle, seal, sealing, verify
from stillme.runs import RecordedRun
from stillme.runs.store import AssessmentRow, Store
from tests.command_lines import invoke, ran
from tests.evidence.test_archive import members_of, zipped
from tests.runs import fill, group, luck, people, scores, write_audit


def answer(_editor: str, request: Request) -> dict[str, Rating] | Refused | Failed:
    if luck(request, "refused") < 0.1:
        return Refused(message="I would rather not.")
    if luck(request, "failed") < 0.1:
        return Failed(error="out of memory", retryable=True)
    return scores(success=1 if luck(request) < (0.5 if group(request) == "b" else 0.1) else 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two editors, two judges, two seeds, refusals and failures."""
    home = tmp_path_factory.mktemp("evidence")
    options = {
        "editors": ("old", "new"),
        "judges": ("one judge", "another"),
        "seeds": (1, 2),
        "prompts": ("O-01", "V-05"),
    }
    folder = fill(write_audit(home / "run", people(home / "people", per_group=6), **options), answer)
    (folder / "report.html").write_text("<p>The report.</p>")
    return folder


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    file = run.parent / "sealed.zip"
    seal(RecordedRun.open(run), file)
    return file


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The run, to be changed."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


Change = Callable[[dict[str, bytes]], None]


@pytest.fixture
def forge(bundle: Path, tmp_path: Path) -> Callable[..., Path]:
    """The bundle with other contents; by default by a forger who also corrects the sums."""

    def forged(change: Change, *, reseal: bool = True) -> Path:
        return changed(bundle, tmp_path / "x.zip", change, reseal=reseal)

    return forged


def changed(bundle: Path, to: Path, change: Change, *, reseal: bool = False) -> Path:
    members = members_of(bundle)
    change(members)
    if reseal:
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != SUMS}
        members[SUMS] = sums_of(hashes).encode()
    return zipped(to, *members.items())


def in_ledger(*statements: str) -> Change:
    """Changes rows of the ledger, past the guards that keep them, and puts the guards back."""

    def change(members: dict[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "stillme.sqlite"
            file.write_bytes(members["stillme.sqlite"])
            with closing(sqlite3.connect(file, isolation_level=None)) as ledger:
                guards = ledger.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
                for guard, _ in guards:
                    ledger.execute(f"DROP TRIGGER {guard}")
                before = ledger.total_changes
                for statement in statements:
                    ledger.execute(statement)
                assert ledger.total_changes > before, "the forger changed nothing"
                for _, sql in guards:
                    ledger.execute(sql)
            members["stillme.sqlite"] = file.read_bytes()

    return change


better = in_ledger(
    "UPDATE judgement SET score = 5 WHERE axis = 'edit_success' AND assessment = "
    "(SELECT MIN(assessment) FROM judgement WHERE axis = 'edit_success' AND score = 1)"
)
"""One score, made better."""


def prettier(members: dict[str, bytes]) -> None:
    """One number of one table, made better."""
    rows = list(csv.reader(io.StringIO(members["tables/estimates.csv"].decode())))
    column = rows[0].index("value")
    place = next(number for number, row in enumerate(rows) if "soft_erasure" in row and float(row[column]) > 0)
    rows[place][column] = "0.0123"
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    members["tables/estimates.csv"] = stream.getvalue().encode()


def test_a_bundle_as_it_was_sealed_is_consistent(bundle: Path):
    verification = verify(bundle)
    assert verification.consistent, verification.as_text()
    assert verification.cells > 1000
    names = members_of(bundle).keys()
    tables = {f"tables/{name}.csv" for name in ("abstentions", "disparities", "estimates", "groups")}
    assert names - tables == {
        *("README.md", "SHA256SUMS", "evidence.json", "report.html", "stillme.sqlite", "tables/findings.json")
    }
    assert tables < names


def test_the_same_rows_make_the_same_bytes(run: Path, bundle: Path, tmp_path: Path):
    again = seal(RecordedRun.open(run), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    assert again.root == verify(bundle).root
    assert {path.name for path in tmp_path.iterdir()} == {"again.zip"}


def test_the_tables_are_those_of_the_run(copy: Path, bundle: Path):
    # 3: some edits failed in a way that a rerun would retry.
    ran("run", copy, "--only", "estimate", code=3)
    made = {f"tables/{table.name}": table.read_bytes() for table in (copy / "tables").glob("*.csv")}
    assert made
    assert made.items() <= members_of(bundle).items()


def test_sums_can_be_checked_without_stillme(bundle: Path, tmp_path: Path):
    with zipfile.ZipFile(bundle) as source:
        source.extractall(tmp_path)
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
    root = hashlib.sha256((tmp_path / "SHA256SUMS").read_bytes()).hexdigest()
    assert root == verify(bundle).root


def test_nothing_but_the_bundle_is_needed(bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def gone(*_: object) -> None:
        raise AssertionError("a plugin was asked for")

    for name in ("plugin_class", "portrait_set", "prompt_set"):
        monkeypatch.setattr(registry, name, gone)
    monkeypatch.setenv("STILLME_HOME", str(tmp_path))
    assert verify(bundle).consistent


# -- tampering --------------------------------------------------------------------------------------------------------


def first(verification: Verification) -> str:
    assert not verification.consistent
    assert str(verification.differences[0]) in verification.as_text()
    return str(verification.differences[0])


def test_a_changed_row_is_not_the_file_that_was_sealed_and_nothing_is_computed(
    forge: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    def gone(*_: object) -> None:
        raise AssertionError("rows were read that are not what was sealed")

    monkeypatch.setattr(sealing, "require_ledger", gone)
    verification = verify(forge(better, reseal=False))
    assert first(verification).startswith("stillme.sqlite (is not the file that was sealed): expected ")
    assert len(verification.differences) == 1
    assert (verification.reached, verification.cells) == ("hashes", 0)
    assert "Stopped after the hashes" in verification.as_text()


def test_a_changed_row_under_corrected_sums_is_found_by_its_numbers(forge: Callable[..., Path]):
    (difference, *_) = verify(forge(better)).differences
    assert difference.file == "tables/disparities.csv"
    assert difference.row
    assert difference.column
    assert difference.expected != difference.found


def test_a_changed_table_is_named_by_file_row_and_column(bundle: Path, forge: Callable[..., Path]):
    (difference,) = verify(forge(prettier)).differences
    assert (difference.file, difference.column, difference.found) == ("tables/estimates.csv", "value", "0.0123")
    rows = list(csv.DictReader(io.StringIO(members_of(bundle)["tables/estimates.csv"].decode())))
    assert rows[difference.row - 1]["value"] == difference.expected


FIRST_ANSWER = "id = (SELECT MIN(id) FROM assessment)"
FIRST_EDIT = "id = (SELECT MIN(id) FROM edit)"
DOCUMENT = "UPDATE design SET document = json_set(document, "
FORGERIES = {
    "judgements": {
        "a score off its scale": "UPDATE judgement SET score = 9 WHERE axis = 'skin_tone'",
        "a score without an answer": "UPDATE judgement SET outcome = 'abstained' WHERE axis = 'skin_tone'",
        "an axis that the judge does not have": "UPDATE judgement SET axis = 'charm' WHERE axis = 'skin_tone'",
        "an answer of another epoch": f"UPDATE assessment SET epoch = 5 WHERE {FIRST_ANSWER}",
        "an answer about another edit": f"UPDATE assessment SET edit = 'x' WHERE {FIRST_ANSWER}",
        "an answer under another key": f"UPDATE assessment SET key = 'x' WHERE {FIRST_ANSWER}",
        "another judge": "UPDATE spec SET version = '99' WHERE use = 'scripted'",
    },
    "edits": {
        "another editor": "UPDATE spec SET version = '99' WHERE use = 'planted'",
        "an edit of another seed": f"UPDATE edit SET seed = 77 WHERE {FIRST_EDIT}",
        "an edit of another arm": f"UPDATE edit SET arm = 'noop' WHERE {FIRST_EDIT}",
        "a picture for a refusal": "UPDATE edit SET image = 'x' WHERE outcome = 'refused'",
        "an edit without its picture": "UPDATE edit SET image = NULL WHERE outcome = 'edited'",
        "a failure for good": "UPDATE edit SET final = 1 WHERE outcome = 'failed'",
        "another instruction": "UPDATE instruction SET text = 'Do something else.'",
        "another prompt": "UPDATE prompt SET id = 'O-09' WHERE id = 'O-01'",
        "portraits under each other's names": "UPDATE portrait SET id = CASE id WHEN 'p00' THEN 'p01' ELSE id END",
        "an edit of no one": f"UPDATE edit SET prompt = 'x' WHERE {FIRST_EDIT}",
    },
    "requests": {
        "another request": "UPDATE request SET instruction = 'Do something else.' WHERE position = 0",
        "a request for another seed": "UPDATE request SET seed = 77 WHERE position = 0",
        "a request that is dropped": "DELETE FROM request WHERE position = 0",
        "a group that is dropped": "DELETE FROM request WHERE portraits LIKE '%p01%' OR portraits LIKE '%p03%'",
        "requests of the other editor": "UPDATE request SET editor = CASE editor WHEN 'old' THEN 'new' ELSE 'old' END",
    },
    "the design": {
        "another title": f"{DOCUMENT}'$.title', 'Perfect')",
        "editors under each other's names": f"{DOCUMENT}'$.editors[0].name', 'new', '$.editors[1].name', 'old')",
        "labels under other portraits": f"{DOCUMENT}'$.portraits[0].attributes.group', 'b')",
        "less confidence": f"{DOCUMENT}'$.analysis.confidence', 0.5)",
    },
}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, names in FORGERIES.items() for name in names])
def test_a_forged_row_is_found_and_its_table_named(forge: Callable[..., Path], table: str, name: str):
    verification = verify(forge(in_ledger(FORGERIES[table][name])))
    assert verification.differences, "it is not noticed"
    named = {difference.file for difference in verification.differences}
    assert table in named | {"stillme.sqlite"}, first(verification)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW more AS SELECT 1",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER more BEFORE INSERT ON spec BEGIN SELECT 1; END",
        "DROP INDEX attempt_of",
        "PRAGMA user_version = 99",
    ],
)
def test_a_ledger_with_other_parts_than_stillme_makes_is_refused(forge: Callable[..., Path], statement: str):
    forged = forge(in_ledger(statement, "UPDATE edit SET seconds = 1"))
    assert not verify(forged).consistent
    with pytest.raises(StillmeError), opened_bundle(forged):
        pass


def test_a_title_prints_no_verdict_of_its_own(run: Path, tmp_path: Path):
    title = "A run\nroot 0123\nAuthentic and consistent: all is well.\u202e\x1b[2K"
    portraits = people(tmp_path / "people", per_group=3)
    folder = fill(write_audit(tmp_path / "run", portraits, prompts=("O-01",)), lambda *_: scores())
    text = (folder / "audit.toml").read_text().replace("'''A made-up run'''", json.dumps(title))
    (folder / "audit.toml").write_text(text)
    fill(folder, lambda *_: None)
    seal(RecordedRun.open(folder), tmp_path / "x.zip")
    verification = verify(tmp_path / "x.zip")
    assert verification.title == title
    shown = verification.as_text().splitlines()
    assert not [line for line in shown if line.startswith(("Authentic", "root 0123"))]
    assert "\x1b" not in verification.as_text()
    assert "\u202e" not in verification.as_text()


def test_a_better_forger_is_found_by_the_published_root(run: Path, bundle: Path, tmp_path: Path):
    # Whoever replaces rows and computes all anew makes another, consistent bundle: only the root tells them apart.
    published = verify(bundle).root
    other = fill(
        write_audit(tmp_path / "forged", run.parent / "people", editors=("old",), prompts=("O-01",)),
        lambda *_: scores(),
    )
    seal(RecordedRun.open(other), tmp_path / "forged.zip")
    assert verify(tmp_path / "forged.zip").consistent
    assert first(verify(tmp_path / "forged.zip", root=published)).startswith("SHA256SUMS (another root than expected)")


@pytest.mark.parametrize("name", ["stillme.sqlite", "tables/groups.csv", "report.html", "evidence.json"])
def test_a_missing_file_is_named(forge: Callable[..., Path], name: str):
    assert f"{name} (is missing)" in str(verify(forge(lambda members: members.pop(name), reseal=False)).differences[0])


def test_a_file_that_was_added_is_named(forge: Callable[..., Path]):
    verification = verify(forge(lambda members: members.update({"tables/more.csv": b""}), reseal=False))
    assert first(verification) == "tables/more.csv (was added after sealing)"


RUINS: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: b"nonsense\n",
    lambda data: b"SQLite format 3\0" + bytes(5000),
    lambda data: data[:8192] + bytes(100) + data[8292:],  # a torn page
]


@pytest.mark.parametrize("ruin", RUINS)
def test_a_ruined_ledger_is_a_difference_and_no_crash(forge: Callable[..., Path], ruin: Callable[[bytes], bytes]):
    forged = forge(lambda members: members.update({"stillme.sqlite": ruin(members["stillme.sqlite"])}))
    assert not verify(forged).consistent


def told(**changed: object) -> Change:
    """What the bundle says of itself, changed."""

    def change(members: dict[str, bytes]) -> None:
        members["evidence.json"] = json.dumps(json.loads(members["evidence.json"]) | changed).encode()

    return change


def test_another_version_is_said_and_a_later_format_is_not_guessed_at(forge: Callable[..., Path]):
    verification = verify(forge(told(stillme="0.0.1")))
    assert verification.consistent
    assert "Sealed by stillme 0.0.1" in verification.as_text()
    with pytest.raises(StillmeError, match=r"format 99, this stillme reads 4.*stillme '9\.0"):
        verify(forge(told(format=99, stillme="9.0")))


def test_what_is_no_bundle_is_said_in_one_sentence(tmp_path: Path):
    with pytest.raises(StillmeError, match="does not exist"):
        verify(tmp_path / "none.zip")
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(StillmeError, match="not a complete zip"):
        verify(tmp_path / "text.zip")
    with pytest.raises(StillmeError, match="no SHA256SUMS"):
        verify(zipped(tmp_path / "other.zip", ("a.txt", b"a")))


# -- what is said ------------------------------------------------------------------------------------------------------


def test_only_a_root_makes_a_bundle_authentic(bundle: Path):
    alone = verify(bundle)
    assert (str(alone.verdict), alone.authenticated) == ("internally consistent, not authenticated", False)
    assert "Internally consistent, not authenticated" in alone.as_text()
    known = verify(bundle, root=alone.root.upper())
    assert (str(known.verdict), known.authenticated) == ("authentic and consistent", True)
    other = verify(bundle, root="0" * 64)
    assert (str(other.verdict), other.authenticated) == ("NOT CONSISTENT", False)
    for data in (alone.as_json(), known.as_json(), other.as_json()):
        assert {"verdict", "authenticated"} <= set(data)


@pytest.mark.parametrize("root", ["", "abc", "0" * 63 + "g"])
def test_a_root_that_cannot_be_one_is_no_check_passed_over(bundle: Path, root: str):
    with pytest.raises(StillmeError, match="64 hexadecimal digits"):
        verify(bundle, root=root)


def test_a_bundle_that_was_changed_does_not_open(bundle: Path, forge: Callable[..., Path]):
    with pytest.raises(StillmeError, match="not what was sealed"), opened_bundle(forge(better, reseal=False)):
        pass
    with opened_bundle(bundle) as run:
        assert run.title == "A made-up run"


# -- labels that were corrected --------------------------------------------------------------------------------------


def test_labels_that_were_corrected_after_the_run_are_no_difference(tmp_path: Path):
    portraits = people(tmp_path / "people", per_group=3)
    audit = fill(write_audit(tmp_path / "run", portraits, prompts=("O-01",)), answer)
    table = portraits / "portraits.csv"
    table.write_text(table.read_text().replace("p00.png,CC0-1.0,made up,a", "p00.png,CC0-1.0,asked,b"))
    fill(audit, lambda *_: None)
    sealed = seal(RecordedRun.open(audit), tmp_path / "x.zip")
    assert verify(sealed.file).consistent, verify(sealed.file).as_text()


# -- pictures, and what must not be there -----------------------------------------------------------------------------


def test_pictures_come_only_when_asked_for(run: Path, tmp_path: Path):
    sealed = seal(RecordedRun.open(run), tmp_path / "full.zip", with_images=True)
    names = members_of(sealed.file)
    with RecordedRun.open(run) as opened:
        sources = {portrait.image.sha256 for portrait in opened.design.portraits}
        edited = {row.image for row in opened.rows() if row.image}
    assert {Path(name).stem for name in names if name.startswith("images/")} == sources | edited
    assert verify(sealed.file).consistent


def test_a_picture_that_is_gone_stops_the_sealing(copy: Path, tmp_path: Path):
    shutil.rmtree(copy / "images")
    with pytest.raises(StillmeError, match="missing from"):
        seal(RecordedRun.open(copy), tmp_path / "x.zip", with_images=True)
    assert not (tmp_path / "x.zip").exists()


def test_no_id_of_a_rater_and_no_key_is_in_its_bytes(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Searched in the bytes of the database, not in its rows: a page that is free still holds what was in it."""
    secrets = ("prolific-5f3a9c", "rater-77-anna", "sk-live-0123456789abcdef")
    monkeypatch.setenv("OPENAI_API_KEY", secrets[2])
    with RecordedRun.open(copy) as opened:
        row = next(row for row in opened.rows() if row.image)
        judge = opened.judges[0]
        ((key, _),) = judge.assessments(row.request.key, row.image)
    assessment = Assessment(
        ratings=scores(), raw=json.dumps({"prolific_pid": secrets[0]}), effective={"rater": secrets[1], "study": "one"}
    )
    answer_of_a_person = AssessmentRow(
        key=key, edit=row.request.key, epoch=9, judge=judge.spec, assessment=assessment, attempts=1, seconds=1, cost=0
    )
    with Store.writing(copy) as store:
        number = "SELECT MAX(id) FROM assessment"
        before = store.query(number).fetchone()
        unlike = replace(answer_of_a_person, key=assessment_key(row.request.key, row.image, judge.spec.key, 9))
        store.add([unlike])
        assert store.query(number).fetchone() > before
        store.places.also_read(["s3://a-private-bucket/run"])
    assert all(secret.encode() in _bytes_of(copy) for secret in secrets[:2]), "the run itself has them"
    with RecordedRun.open(copy) as opened:
        seal(opened, tmp_path / "x.zip")
    everything = b"".join(members_of(tmp_path / "x.zip").values())
    assert b'"study": "one"' in everything, "the answer is there"
    assert not [secret for secret in (*secrets, "a-private-bucket") if secret.encode() in everything]
    assert verify(tmp_path / "x.zip").consistent


def _bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("stillme.sqlite*"))


def test_a_run_that_grows_meanwhile_is_sealed_as_it_was_read(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from stillme.findings.evidence import sealing

    original = sealing.copy_ledger

    def late(*arguments: object) -> object:
        done = original(*arguments)
        # The failed ones succeed after the rows were copied and before the tables are made.
        fill(copy, lambda editor, request: scores() if isinstance(answer(editor, request), Failed) else None)
        return done

    monkeypatch.setattr(sealing, "copy_ledger", late)
    seal(RecordedRun.open(copy), tmp_path / "x.zip")
    monkeypatch.undo()
    assert verify(tmp_path / "x.zip").consistent
    with Store.reading(copy) as store:
        assert store.totals().edits.get("to retry", 0) == 0, "the run did grow"


def test_requests_that_were_never_made_are_listed_and_missing(tmp_path: Path):
    audit = write_audit(
        tmp_path / "run",
        people(tmp_path / "people", per_group=3),
        arms=("baseline", "feature", "noop"),
        prompts=("O-01",),
    )
    seal(RecordedRun.open(fill(audit, answer)), tmp_path / "x.zip")
    verification = verify(tmp_path / "x.zip")
    assert verification.consistent, verification.as_text()
    groups = members_of(tmp_path / "x.zip")["tables/estimates.csv"].decode()
    with opened_bundle(tmp_path / "x.zip") as opened:
        rows = list(opened.requests())
    assert {str(row.arm): (bool(row.withheld), row.waiting) for row in rows} == {
        "baseline": (False, False),
        "noop": (False, False),
        "feature": (True, True),
    }
    assert "edit missing: 6" in groups


def test_the_commands(run: Path, tmp_path: Path):
    file = tmp_path / "b.zip"
    sealed = json.loads(invoke("export", run, "--bundle", file, "--json").output)
    ran("verify", file, "--root", sealed["root"])
    shown = ran("verify", file, "--root", "0" * 64, "--json", code=1)
    assert json.loads(shown.output)["differences"][0]["file"] == "SHA256SUMS"
    changed(file, tmp_path / "c.zip", prettier)
    shown = ran("verify", tmp_path / "c.zip", code=1)
    assert "NOT CONSISTENT. First difference: tables/estimates.csv" in shown.output
    for options in (["--with-images"], ["--bundle", "x.zip", "--to", "y"]):
        ran("export", run, *options, code=2)
    with pytest.raises(StillmeError, match=r"should end in \.zip"):
        seal(RecordedRun.open(run), tmp_path / "b.rar")
