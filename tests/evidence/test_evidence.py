"""Bundles: sealed the same from the same rows, and consistent only if every number follows from them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stillme import registry
from stillme.cli import cli
from stillme.errors import StillmeError
from stillme.evidence import Verification, opened_bundle, seal, verify, verifying
from stillme.files import SUMS, sums_of
from stillme.results import Run
from stillme.store import Store
from stillme.types import Failed, Rating, Refused, Request
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
    seal(Run.open(run), file)
    return file


Change = Callable[[dict[str, bytes]], None]


def changed(bundle: Path, to: Path, change: Change, *, reseal: bool = False) -> Path:
    """The bundle with other contents; with `reseal`, by a forger who also corrects the sums."""
    with zipfile.ZipFile(bundle) as source:
        members = {name: source.read(name) for name in source.namelist()}
    change(members)
    if reseal:
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != SUMS}
        members[SUMS] = sums_of(hashes).encode()
    with zipfile.ZipFile(to, "w") as target:
        for name, data in members.items():
            target.writestr(name, data)
    return to


def better(members: dict[str, bytes]) -> None:
    """One score, made better."""
    lines = members["rows/judgements.jsonl"].decode().splitlines()
    for place, line in enumerate(lines):
        row = json.loads(line)
        if row["axis"] == "edit_success" and row["score"] == 1:
            lines[place] = json.dumps(row | {"score": 5})
            break
    members["rows/judgements.jsonl"] = ("\n".join(lines) + "\n").encode()


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
    with zipfile.ZipFile(bundle) as source:
        names = set(source.namelist())
    assert names >= {
        "README.md",
        "SHA256SUMS",
        "audit.toml",
        "codebook.md",
        "configurations.json",
        "design.json",
        "evidence.json",
        "report.html",
        "rows/edits.jsonl",
        "rows/judgements.jsonl",
        "rows/requests.jsonl",
        "tables/estimates.csv",
    }
    assert not [name for name in names if name.startswith(("images/", "portraits/"))]


def test_the_same_rows_make_the_same_bytes(run: Path, bundle: Path, tmp_path: Path):
    again = seal(Run.open(run), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    other = seal(Run.open(run), tmp_path / "other.tar")
    assert other.root == again.root == verify(bundle).root, "the root does not depend on the kind of archive"
    assert verify(tmp_path / "other.tar", root=again.root).consistent
    assert {path.name for path in tmp_path.iterdir()} == {"again.zip", "other.tar"}


def test_the_tables_are_those_of_the_run(run: Path, bundle: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    # 3: some edits failed in a way that a rerun would retry.
    assert CliRunner().invoke(cli, ["estimate", str(copy)]).exit_code == 3
    with zipfile.ZipFile(bundle) as source:
        for table in (copy / "tables").glob("*.csv"):
            assert source.read(f"tables/{table.name}") == table.read_bytes()


def test_sums_can_be_checked_without_stillme(bundle: Path, tmp_path: Path):
    with zipfile.ZipFile(bundle) as source:
        source.extractall(tmp_path)
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
    root = hashlib.sha256((tmp_path / "SHA256SUMS").read_bytes()).hexdigest()
    assert root == verify(bundle).root


def test_nothing_but_the_bundle_is_needed(bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def gone(*_: object) -> None:
        raise AssertionError("a plugin was asked for")

    for name in ("editor_class", "judge_class", "portrait_set", "prompt_set"):
        monkeypatch.setattr(registry, name, gone)
    monkeypatch.setenv("STILLME_HOME", str(tmp_path))
    assert verify(bundle).consistent


# -- tampering --------------------------------------------------------------------------------------------------------


def first(verification: Verification) -> str:
    assert not verification.consistent
    assert str(verification.differences[0]) in verification.as_text()
    return str(verification.differences[0])


def test_a_changed_row_is_not_the_file_that_was_sealed(bundle: Path, tmp_path: Path):
    verification = verify(changed(bundle, tmp_path / "x.zip", better))
    assert first(verification).startswith("rows/judgements.jsonl (is not the file that was sealed): expected ")


def test_after_a_wrong_hash_nothing_is_computed(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object) -> None:
        raise AssertionError("rows were read that are not what was sealed")

    monkeypatch.setattr(verifying, "as_run", gone)
    verification = verify(changed(bundle, tmp_path / "x.zip", better))
    assert len(verification.differences) == 1
    assert (verification.reached, verification.cells) == ("hashes", 0)
    assert "Stopped after the hashes" in verification.as_text()


def test_a_changed_row_under_corrected_sums_is_found_by_its_numbers(bundle: Path, tmp_path: Path):
    (difference, *_) = verify(changed(bundle, tmp_path / "x.zip", better, reseal=True)).differences
    assert difference.file == "tables/disparities.csv"
    assert difference.row
    assert difference.column
    assert difference.expected != difference.found


def test_a_changed_table_is_named_by_file_row_and_column(bundle: Path, tmp_path: Path):
    (difference,) = verify(changed(bundle, tmp_path / "x.zip", prettier, reseal=True)).differences
    assert (difference.file, difference.column, difference.found) == ("tables/estimates.csv", "value", "0.0123")
    with zipfile.ZipFile(bundle) as source:
        rows = list(csv.DictReader(io.StringIO(source.read("tables/estimates.csv").decode())))
    assert rows[difference.row - 1]["value"] == difference.expected


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("requests", "instruction", "Do something else."),
        ("requests", "seed", 77),
        ("edits", "prompt", "O-09"),
        ("edits", "editor_version", "99"),
        ("judgements", "judge_version", "99"),
        ("judgements", "epoch", 5),
    ],
)
def test_a_row_that_does_not_fit_its_key_is_found(bundle: Path, tmp_path: Path, table: str, column: str, value: object):
    name = f"rows/{table}.jsonl"

    def change(members: dict[str, bytes]) -> None:
        head, *rest = members[name].decode().splitlines(keepends=True)
        members[name] = (json.dumps(json.loads(head) | {column: value}) + "\n" + "".join(rest)).encode()

    verification = verify(changed(bundle, tmp_path / "x.zip", change, reseal=True))
    assert (verification.differences[0].file, verification.differences[0].row) == (name, 1)


def test_a_better_forger_is_found_by_the_published_root(run: Path, bundle: Path, tmp_path: Path):
    # Whoever replaces rows and computes all anew makes another, consistent bundle: only the root tells them apart.
    published = verify(bundle).root
    other = fill(
        write_audit(tmp_path / "forged", run.parent / "people", editors=("old",), prompts=("O-01",)),
        lambda *_: scores(),
    )
    seal(Run.open(other), tmp_path / "forged.zip")
    assert verify(tmp_path / "forged.zip").consistent
    assert first(verify(tmp_path / "forged.zip", root=published)).startswith("SHA256SUMS (another root than expected)")


@pytest.mark.parametrize("name", ["rows/edits.jsonl", "tables/groups.csv", "report.html", "evidence.json"])
def test_a_missing_file_is_named(bundle: Path, tmp_path: Path, name: str):
    verification = verify(changed(bundle, tmp_path / "x.zip", lambda members: members.pop(name)))
    assert f"{name} (is missing)" in str(verification.differences[0])


def test_a_file_that_was_added_is_named(bundle: Path, tmp_path: Path):
    verification = verify(changed(bundle, tmp_path / "x.zip", lambda members: members.update({"rows/more.jsonl": b""})))
    assert first(verification) == "rows/more.jsonl (was added after sealing)"


@pytest.mark.parametrize("name", ["design.json", "rows/edits.jsonl", "rows/judgements.jsonl", "rows/requests.jsonl"])
@pytest.mark.parametrize("data", [b"", b"{}\n", b"nonsense\n", b'{"key": 1}\n'])
def test_a_ruined_file_is_a_difference_and_no_crash(bundle: Path, tmp_path: Path, name: str, data: bytes):
    assert not verify(changed(bundle, tmp_path / "x.zip", lambda m: m.update({name: data}), reseal=True)).consistent


def test_another_version_is_said(bundle: Path, tmp_path: Path):
    def older(members: dict[str, bytes]) -> None:
        members["evidence.json"] = json.dumps(json.loads(members["evidence.json"]) | {"stillme": "0.0.1"}).encode()

    verification = verify(changed(bundle, tmp_path / "x.zip", older, reseal=True))
    assert verification.consistent
    assert "Sealed by stillme 0.0.1" in verification.as_text()


def test_a_later_format_is_not_guessed_at(bundle: Path, tmp_path: Path):
    def later(members: dict[str, bytes]) -> None:
        members["evidence.json"] = b'{"format": 99, "stillme": "9.0"}'

    with pytest.raises(StillmeError, match=r"format 99, this stillme reads 3.*stillme 9\.0"):
        verify(changed(bundle, tmp_path / "x.zip", later, reseal=True))


def test_what_is_no_bundle_is_said_in_one_sentence(tmp_path: Path):
    with pytest.raises(StillmeError, match="does not exist"):
        verify(tmp_path / "none.zip")
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(StillmeError, match="no whole zip or tar"):
        verify(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as target:
        target.writestr("a.txt", "a")
    with pytest.raises(StillmeError, match="no SHA256SUMS"):
        verify(tmp_path / "other.zip")


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


def test_the_report_is_named_as_not_verified(bundle: Path):
    verification = verify(bundle)
    assert "Not verified, hash only: report.html (not rebuilt" in verification.as_text()
    assert {entry["file"] for entry in verification.as_json()["not_verified"]} == {
        "README.md",
        "codebook.md",
        "configurations.json",
        "report.html",
    }


def test_a_bundle_that_was_changed_does_not_open(bundle: Path, tmp_path: Path):
    with (
        pytest.raises(StillmeError, match="not what was sealed"),
        opened_bundle(changed(bundle, tmp_path / "x.zip", better)),
    ):
        pass
    with opened_bundle(bundle) as run:
        assert run.title == "A made-up run"


# -- audit.toml, and labels that were corrected -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [
        ("erasure = 0.319", "erasure = 0.1", "editors[0].parameters.everyone.erasure"),
        ("seeds = [1, 2]", "seeds = [1, 3]", "editors[0].seeds[1]"),
        ("factors = ['group']", "factors = ['group']\nconfidence = 0.9", "estimates.confidence"),
        ("arms = ['baseline']", "arms = ['baseline', 'noop']", "arms[1]"),
        ("[estimates]", "[sample]\nsize = 3\n[estimates]", "sample"),
        ("[estimates]", "[[judges]]\nuse = 'scripted'\nname = 'third'\n[estimates]", "judges[2]"),
        ("[estimates]", "[estimates", ""),
    ],
)
def test_an_audit_file_that_says_something_else_is_found(bundle: Path, tmp_path: Path, old: str, new: str, column: str):
    def change(members: dict[str, bytes]) -> None:
        text = members["audit.toml"].decode()
        assert old in text
        members["audit.toml"] = text.replace(old, new, 1).encode()

    verification = verify(changed(bundle, tmp_path / "x.zip", change, reseal=True))
    difference = verification.differences[0]
    assert (difference.file, difference.column) == ("audit.toml", column)


def test_an_audit_file_that_changed_after_the_run_is_left_out(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    text = (copy / "audit.toml").read_text()
    (copy / "audit.toml").write_text(text.replace("factors = ['group']", "factors = ['group']\nconfidence = 0.9"))
    sealed = seal(Run.open(copy), tmp_path / "x.zip")
    assert "audit.toml is left out, as it has changed since the run was recorded" in sealed.as_text()
    with zipfile.ZipFile(sealed.file) as source:
        assert "audit.toml" not in source.namelist()
    assert verify(sealed.file).consistent


def test_what_changes_no_row_may_change_in_the_audit_file(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    with (copy / "audit.toml").open("a") as stream:
        stream.write("[budget]\ndollars = 5\n")
    sealed = seal(Run.open(copy), tmp_path / "x.zip")
    assert not sealed.left_out
    assert verify(sealed.file).consistent


def test_labels_that_were_corrected_after_the_run_are_no_difference(tmp_path: Path):
    portraits = people(tmp_path / "people", per_group=3)
    audit = fill(write_audit(tmp_path / "run", portraits, prompts=("O-01",)), answer)
    table = portraits / "portraits.csv"
    table.write_text(table.read_text().replace("p00.png,CC0-1.0,made up,a", "p00.png,CC0-1.0,asked,b"))
    fill(audit, lambda *_: None)
    sealed = seal(Run.open(audit), tmp_path / "x.zip")
    with zipfile.ZipFile(sealed.file) as source:
        assert len(json.loads(source.read("evidence.json"))["relabelled"]) == 1
    assert verify(sealed.file).consistent, verify(sealed.file).as_text()


# -- pictures, and what must not be there -----------------------------------------------------------------------------


def test_pictures_come_only_when_asked_for(run: Path, tmp_path: Path):
    sealed = seal(Run.open(run), tmp_path / "full.tar", with_images=True)
    with tarfile.open(sealed.file) as source:
        names = source.getnames()
    with Run.open(run) as opened:
        sources = {portrait.image.sha256 for portrait in opened.design.portraits}
        edited = {row.image for row in opened.rows() if row.image}
    assert {Path(name).stem for name in names if name.startswith("images/")} == sources | edited
    assert verify(sealed.file).consistent


def test_a_picture_that_is_gone_stops_the_sealing(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "images")
    with pytest.raises(StillmeError, match="missing from"):
        seal(Run.open(copy), tmp_path / "x.zip", with_images=True)
    assert not (tmp_path / "x.zip").exists()


def test_no_path_of_this_machine_is_in_what_stillme_writes(run: Path, bundle: Path):
    with zipfile.ZipFile(bundle) as source:
        for name in source.namelist():
            # audit.toml is the user's own text, and the resolved source is a line of it.
            if name not in ("audit.toml", "design.json", "configurations.json"):
                assert str(run.parent).encode() not in source.read(name), name


def test_a_run_that_grows_meanwhile_is_sealed_as_it_was_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    from stillme.evidence import sealing

    original = sealing.request_rows

    def late(*arguments: object) -> object:
        # The failed ones succeed after the rows were read and before the tables are made.
        fill(copy, lambda editor, request: scores() if isinstance(answer(editor, request), Failed) else None)
        return original(*arguments)

    monkeypatch.setattr(sealing, "request_rows", late)
    seal(Run.open(copy), tmp_path / "x.zip")
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
    seal(Run.open(fill(audit, answer)), tmp_path / "x.zip")
    verification = verify(tmp_path / "x.zip")
    assert verification.consistent, verification.as_text()
    with zipfile.ZipFile(tmp_path / "x.zip") as source:
        rows = [json.loads(line) for line in source.read("rows/requests.jsonl").splitlines()]
        groups = source.read("tables/estimates.csv").decode()
    assert {row["arm"]: (bool(row["withheld"]), row["waiting"]) for row in rows} == {
        "baseline": (False, False),
        "noop": (False, False),
        "feature": (True, True),
    }
    assert "edit missing: 6" in groups


def test_the_commands(run: Path, tmp_path: Path):
    file = tmp_path / "b.zip"
    shown = CliRunner().invoke(cli, ["export", str(run), "--bundle", str(file), "--json"])
    sealed = json.loads(shown.output)
    assert CliRunner().invoke(cli, ["verify", str(file), "--root", sealed["root"]]).exit_code == 0
    shown = CliRunner().invoke(cli, ["verify", str(file), "--root", "0" * 64, "--json"])
    assert shown.exit_code == 1
    assert json.loads(shown.output)["differences"][0]["file"] == "SHA256SUMS"
    changed(file, tmp_path / "c.zip", prettier)
    shown = CliRunner().invoke(cli, ["verify", str(tmp_path / "c.zip")])
    assert shown.exit_code == 1
    assert "NOT CONSISTENT. First difference: tables/estimates.csv" in shown.output
    for options in (["--with-images"], ["--bundle", "x.zip", "--to", "y"]):
        assert CliRunner().invoke(cli, ["export", str(run), *options]).exit_code == 2
    with pytest.raises(StillmeError, match=r"\.zip or \.tar"):
        seal(Run.open(run), tmp_path / "b.rar")
