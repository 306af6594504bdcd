"""Whatever is changed in a bundle, one place at a time and with corrected sums, is noticed or listed as not covered."""

from __future__ import annotations

import csv
import io
import json
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from stillme import audit as audits
from stillme.calibration.records import AxisResult, Calibration, Share, Verdict
from stillme.errors import StillmeError
from stillme.evidence import NOT_COVERED, coverage, recomputing, seal, verify, verifying
from stillme.files import SUMS
from stillme.results import Run
from stillme.stages.recording import record
from stillme.store import Store
from stillme.types import Abstained, Failed, Rated, Refused, Request
from tests.evidence.forging import Members, write_bundle
from tests.runs import fill, group, luck, people, scores, write_audit

Json = Any
DOCS = Path(__file__).parents[2] / "docs" / "evidence.md"


def answer(_editor: str, request: Request) -> Any:
    """Every kind of outcome and of answer."""
    name = request.portraits[0].id
    if name == "p01" and request.arm == "baseline":
        return Refused(message="I would rather not.")
    if name == "p02" and request.arm == "baseline":
        return Failed(error="out of memory", retryable=True)
    ratings = scores(success=1 if luck(request) < (0.7 if group(request) == "b" else 0.2) else 4)
    if name == "p03":
        ratings["skin_tone"] = Abstained(reason="No face.")
    if name == "p04":
        ratings["skin_tone"] = Failed(error="no answer", retryable=True)
    if name == "p05":
        ratings["race_change"] = Rated(score=2)
    return ratings


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """A small bundle: three arms, one of them withheld; two judges, one calibrated, the other asked twice."""
    home = tmp_path_factory.mktemp("mutations")
    folder = fill(
        write_audit(
            home / "run",
            people(home / "people", per_group=3),
            judges=("one judge",),
            arms=("baseline", "feature", "noop"),
            prompts=("V-05",),
            extra="[[judges]]\nuse = 'scripted'\nname = 'another'\nepochs = 2\n"
            "[judges.parameters]\nscores = { edit_success = 2.0, skin_tone = 3.0, race_change = 1.0 }\n"
            "[gate]\nrules = ['soft_erasure <= 0.5']\n[budget]\ndollars = 5\n",
        ),
        answer,
    )
    (folder / "report.html").write_text("<p>The report.</p>")
    _calibrate(folder)
    file = home / "bundle.zip"
    with Run.open(folder) as run:
        seal(run, file, with_images=True)
    with zipfile.ZipFile(file) as source:
        return {name: source.read(name) for name in source.namelist()}


def _calibrate(folder: Path) -> None:
    audit = audits.load(folder, ready=False)
    share = Share(value=0.1, low=0.0, high=0.2, portraits=9)
    result = AxisResult(false_alarm=share, sensitivity=share, bias=None, faceless=None, smallest=None, answered=1.0)
    judge = audit.judges[0]
    calibration = Calibration(
        judge=judge.name,
        key=judge.judge.spec.key,
        limits="1",
        portraits="nine",
        pairs=9,
        axes={"edit_success": {"everyone": result}},
        verdicts={"edit_success": Verdict.PASSED},
        licences={"edit_success": {"darker": Verdict.PASSED, "medium": Verdict.PASSED, "lighter": Verdict.PASSED}},
    )
    with Store.writing(folder) as store:
        record(audit, store, {judge.name: json.loads(json.dumps(calibration.as_json()))})


@pytest.fixture(autouse=True)
def same_rows_same_tables(monkeypatch: pytest.MonkeyPatch, kept: dict[str, dict[str, bytes]]) -> None:
    """Tables are a function of columns, settings and standing: computed once for each of them."""

    def recompute(run: Run, into: Path) -> None:
        results = run.results
        columns = [results.edits, results.scores, run.settings, recomputing.standing_of(run)]
        name = repr([_plain(column) for column in columns])
        if name not in kept:
            kept[name] = {path.name: path.read_bytes() for path in recomputing.recompute(run, into)}
        (into / "tables").mkdir(exist_ok=True)
        for table, data in kept[name].items():
            (into / "tables" / table).write_bytes(data)

    monkeypatch.setattr(verifying, "recompute", recompute)


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, bytes]]:
    return {}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value.tolist() if hasattr(value, "tolist") else repr(value)


def noticed(members: Members, tmp_path: Path) -> bool:
    """Whether `verify` says anything against a bundle whose sums were corrected."""
    file = write_bundle(tmp_path / "x.zip", members)
    try:
        return not verify(file).consistent
    except StillmeError:
        return True
    finally:
        file.unlink()


def other(value: Json) -> Json:
    """A value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 0.5
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case None:
            return "something"
        case list():
            return [*value, "something"]
        case _:
            return {**value, "something": "else"}


def mutations(value: Json, path: str = "", depth: int = 0) -> Iterator[tuple[str, Callable[[Json], Json]]]:
    """Every value of a document changed; keys removed and added, lists cut and turned around."""
    if not isinstance(value, dict | list) or depth < 2:
        yield path, lambda _, value=value: other(value)
    if isinstance(value, dict):
        # Entries by portrait are alike; the first stands for them.
        keys = list(value)[:1] if "p00" in value else list(value)
        for key in keys:
            place = f"{path}.{key}".lstrip(".")
            if depth < 2:
                yield place, lambda whole, key=key: {name: part for name, part in whole.items() if name != key}
            for inner, change in mutations(value[key], place, depth + 1):
                yield inner, lambda whole, key=key, change=change: whole | {key: change(whole[key])}
    elif isinstance(value, list) and value:
        yield path, lambda whole: whole[1:]
        if len(value) > 1:
            yield path, lambda whole: whole[::-1]
        # So are entries of a list.
        for inner, change in mutations(value[0], f"{path}[]", depth + 1):
            yield inner, lambda whole, change=change: [change(whole[0]), *whole[1:]]


def check(survivors: set[tuple[str, str]]) -> None:
    """Nothing survives that is not listed."""
    unlisted = {place for place in survivors if not any(entry.covers(*place) for entry in NOT_COVERED)}
    assert not unlisted


def document_survivors(members: Members, name: str, tmp_path: Path) -> set[tuple[str, str]]:
    document = json.loads(members[name])
    survivors: set[tuple[str, str]] = set()
    for path, change in mutations(document):
        changed = change(document)
        if changed != document and noticed(members | {name: json.dumps(changed).encode()}, tmp_path) is False:
            survivors.add((name, path))
    return survivors


def row_survivors(members: Members, name: str, tmp_path: Path) -> set[tuple[str, str]]:
    """One row of each kind, every column; rows dropped, doubled and swapped."""
    rows = [json.loads(line) for line in members[name].splitlines()]

    def survives(changed: list[Json]) -> bool:
        data = "".join(json.dumps(row) + "\n" for row in changed).encode()
        return changed != rows and not noticed(members | {name: data}, tmp_path)

    survivors: set[tuple[str, str]] = set()
    kinds = {_kind(row): place for place, row in reversed(list(enumerate(rows)))}
    for index, place in enumerate(kinds.values()):
        before, row, after = rows[:place], rows[place], rows[place + 1 :]
        # What is inside of a value is read the same way in every kind of row.
        columns = mutations(row) if index == 0 else ((name, _changing(name)) for name in row)
        survivors |= {(name, path) for path, change in columns if survives([*before, change(row), *after])}
        for path, changed in (
            ("(a row less)", [*before, *after]),
            ("(a row twice)", [*before, row, row, *after]),
            (coverage.ORDER, [*before, *after[:1], row, *after[1:]]),
        ):
            if survives(changed):
                survivors.add((name, path))
    return survivors


def _kind(row: Json) -> Json:
    return row.get("outcome"), row.get("axis"), bool(row.get("withheld"))


def _changing(column: str) -> Callable[[Json], Json]:
    return lambda row: row | {column: other(row[column])}


def test_the_bundle_is_consistent_as_it_is(members: Members, tmp_path: Path):
    assert not noticed(members, tmp_path)


@pytest.mark.parametrize("name", ["design.json", "evidence.json"])
def test_every_key_and_value_of_a_document(members: Members, tmp_path: Path, name: str):
    check(document_survivors(members, name, tmp_path))


@pytest.mark.parametrize("name", ["requests", "edits", "judgements"])
def test_every_column_of_every_kind_of_row(members: Members, tmp_path: Path, name: str):
    check(row_survivors(members, f"rows/{name}.jsonl", tmp_path))


def test_every_key_of_the_audit_file(members: Members, tmp_path: Path):
    settings = tomllib.loads(members["audit.toml"].decode())
    alive: set[tuple[str, str]] = set()
    for path, change in mutations(settings):
        changed = change(settings)
        # What is not set says nothing.
        if _is_part(changed, settings):
            continue
        if not noticed(members | {"audit.toml": tomli_w.dumps(changed).encode()}, tmp_path):
            alive.add(("audit.toml", path))
    check(alive)


def _is_part(changed: Json, settings: Json) -> bool:
    if isinstance(changed, dict) and isinstance(settings, dict):
        return all(key in settings and _is_part(value, settings[key]) for key, value in changed.items())
    if isinstance(changed, list) and isinstance(settings, list):
        return len(changed) == len(settings) and all(map(_is_part, changed, settings))
    return changed == settings


def test_every_file(members: Members, tmp_path: Path):
    alive = {
        (name, "")
        for name in members
        if name != SUMS and not noticed(members | {name: members[name] + b"\n<p>more</p>\n"}, tmp_path)
    }
    check(alive)
    for name in members:
        without = {key: data for key, data in members.items() if key != name}
        assert noticed(without, tmp_path) or name == SUMS, f"without {name}"
    for name in ("notes.html", "rows/more.jsonl", "tables/more.csv", "images/aa/more.png"):
        assert noticed(members | {name: b"more"}, tmp_path), f"with {name}"


def test_every_cell_of_every_table(members: Members, tmp_path: Path):
    tables = [name for name in members if name.startswith("tables/") and name.endswith(".csv")]
    assert len(tables) == 3
    for name in tables:
        head, *rows = csv.reader(io.StringIO(members[name].decode()))
        stream = io.StringIO()
        changed = [[_other_cell(cell) for cell in row] for row in rows]
        csv.writer(stream, lineterminator="\n").writerows([head, *changed])
        file = write_bundle(tmp_path / "x.zip", members | {name: stream.getvalue().encode()})
        places = {(difference.row, difference.column) for difference in verify(file).differences}
        assert places == {(number, column) for number in range(1, len(rows) + 1) for column in head}
        for wrong in ([head, *rows[1:]], [head, *rows, rows[-1]], [head[::-1], *rows], [head, *rows[::-1]], []):
            stream = io.StringIO()
            csv.writer(stream, lineterminator="\n").writerows(wrong)
            assert noticed(members | {name: stream.getvalue().encode()}, tmp_path)


def test_every_part_of_every_finding(members: Members, tmp_path: Path):
    name = "tables/findings.json"
    records = json.loads(members[name])
    assert records
    changed = [{key: _other_cell(str(value)) for key, value in record.items()} for record in records]
    file = write_bundle(tmp_path / "x.zip", members | {name: json.dumps(changed).encode()})
    places = {(difference.row, difference.column) for difference in verify(file).differences}
    assert places == {(number, key) for number in range(1, len(records) + 1) for key in records[0]}
    for wrong in (records[1:], [*records, records[-1]], {"records": records}, [1], "no JSON"):
        text = wrong if isinstance(wrong, str) else json.dumps(wrong)
        assert noticed(members | {name: text.encode()}, tmp_path)


def _other_cell(cell: str) -> str:
    try:
        return str(float(cell) + 0.01)
    except ValueError:
        return f"{cell}x"


def test_the_page_lists_what_is_not_covered():
    assert coverage.as_markdown() in DOCS.read_text()
