"""Bundles: sealed the same from the same rows, and sound only if every number follows from them."""

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
from stillme.evidence import Verification, seal, verify
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


def test_a_bundle_as_it_was_sealed_is_sound(bundle: Path):
    found = verify(bundle)
    assert found.sound, found.as_text()
    assert found.cells > 1000
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
    assert verify(tmp_path / "other.tar", root=again.root).sound
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
    assert verify(bundle).sound


# -- tampering --------------------------------------------------------------------------------------------------------


def first(found: Verification) -> str:
    assert not found.sound
    assert str(found.differences[0]) in found.as_text()
    return str(found.differences[0])


def test_a_changed_row_is_not_the_file_that_was_sealed(bundle: Path, tmp_path: Path):
    found = verify(changed(bundle, tmp_path / "x.zip", better))
    assert first(found).startswith("rows/judgements.jsonl (is not the file that was sealed): expected ")
    assert [each for each in found.differences if each.file.startswith("tables/")], "and its number differs too"


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

    found = verify(changed(bundle, tmp_path / "x.zip", change, reseal=True))
    assert (found.differences[0].file, found.differences[0].row) == (name, 1)


def test_a_better_forger_is_found_by_the_published_root(run: Path, bundle: Path, tmp_path: Path):
    # Whoever replaces rows and computes all anew makes another, sound bundle: only the root tells them apart.
    published = verify(bundle).root
    other = fill(
        write_audit(tmp_path / "forged", run.parent / "people", editors=("old",), prompts=("O-01",)),
        lambda *_: scores(),
    )
    seal(Run.open(other), tmp_path / "forged.zip")
    assert verify(tmp_path / "forged.zip").sound
    assert first(verify(tmp_path / "forged.zip", root=published)).startswith("SHA256SUMS (another root than expected)")


@pytest.mark.parametrize("name", ["rows/edits.jsonl", "tables/groups.csv", "report.html", "evidence.json"])
def test_a_missing_file_is_named(bundle: Path, tmp_path: Path, name: str):
    found = verify(changed(bundle, tmp_path / "x.zip", lambda members: members.pop(name)))
    assert f"{name} (is missing)" in str(found.differences[0])


def test_a_file_that_was_added_is_named(bundle: Path, tmp_path: Path):
    found = verify(changed(bundle, tmp_path / "x.zip", lambda members: members.update({"rows/more.jsonl": b""})))
    assert first(found) == "rows/more.jsonl (was added after sealing)"


@pytest.mark.parametrize("name", ["design.json", "rows/edits.jsonl", "rows/judgements.jsonl", "rows/requests.jsonl"])
@pytest.mark.parametrize("data", [b"", b"{}\n", b"nonsense\n", b'{"key": 1}\n'])
def test_a_ruined_file_is_a_difference_and_no_crash(bundle: Path, tmp_path: Path, name: str, data: bytes):
    assert not verify(changed(bundle, tmp_path / "x.zip", lambda m: m.update({name: data}), reseal=True)).sound


def test_another_version_is_said(bundle: Path, tmp_path: Path):
    def older(members: dict[str, bytes]) -> None:
        members["evidence.json"] = json.dumps(json.loads(members["evidence.json"]) | {"stillme": "0.0.1"}).encode()

    found = verify(changed(bundle, tmp_path / "x.zip", older, reseal=True))
    assert found.sound
    assert "Sealed by stillme 0.0.1" in found.as_text()


def test_a_later_format_is_not_guessed_at(bundle: Path, tmp_path: Path):
    def later(members: dict[str, bytes]) -> None:
        members["evidence.json"] = b'{"format": 99, "stillme": "9.0"}'

    with pytest.raises(StillmeError, match=r"format 99, this stillme reads 2.*stillme 9\.0"):
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


def test_nothing_is_unpacked_outside(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as target:
        target.writestr("../evil.txt", "out")
    with tarfile.open(tmp_path / "evil.tar", "w") as target:
        target.addfile(tarfile.TarInfo("/tmp/evil.txt"))
    for name in ("evil.zip", "evil.tar"):
        with pytest.raises(StillmeError, match="outside"):
            verify(tmp_path / name)


# -- pictures, and what must not be there -----------------------------------------------------------------------------


def test_pictures_come_only_when_asked_for(run: Path, tmp_path: Path):
    sealed = seal(Run.open(run), tmp_path / "full.tar", with_images=True)
    with tarfile.open(sealed.file) as source:
        names = source.getnames()
    with Run.open(run) as opened:
        sources = {portrait.image.sha256 for portrait in opened.design.portraits}
        edited = {row.image for row in opened.rows() if row.image}
    assert {Path(name).stem for name in names if name.startswith("images/")} == sources | edited
    assert verify(sealed.file).sound


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
    assert verify(tmp_path / "x.zip").sound
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
    found = verify(tmp_path / "x.zip")
    assert found.sound, found.as_text()
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
    assert "NOT SOUND. The first difference: tables/estimates.csv" in shown.output
    for options in (["--with-images"], ["--bundle", "x.zip", "--to", "y"]):
        assert CliRunner().invoke(cli, ["export", str(run), *options]).exit_code == 2
    with pytest.raises(StillmeError, match=r"\.zip or \.tar"):
        seal(Run.open(run), tmp_path / "b.rar")
