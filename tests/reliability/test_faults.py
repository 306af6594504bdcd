"""Each fault as a user meets it: through the command line, in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stillme.api.doctor import examine_run
from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import StillmeError, StoreDamaged
from stillme.findings.evidence.sealing import seal
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.runs.store.opening import ROW_COUNTS
from stillme.runs.store.pictures import UNFINISHED
from stillme.runs.store.rows import Attempt
from tests.editors.hosted.loopback import Says, serving
from tests.processes import Started, ran, stillme
from tests.reliability.faulty import audit, calls, hold, release, rows

Write = Callable[..., Path]


_STARTED: list[Started] = []


def started(*words: object) -> Started:
    run = Started(*words)
    _STARTED.append(run)
    return run


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """A test that fails leaves no process behind for the next one to be blamed for."""
    yield
    while _STARTED:
        _STARTED.pop().kill()


def edited_picture(folder: Path) -> Path:
    with RecordedRun.open(folder) as run:
        sources = {portrait.image.sha256 for portrait in run.design.portraits}
        return run.picture(next(row.image for row in run.rows() if row.image and row.image not in sources))


def with_editor(folder: Path, use: str, parameters: str) -> Path:
    """The audit with another editor."""
    text = (folder / "audit.toml").read_text().replace("python:./edit.py:edit", use)
    (folder / "audit.toml").write_text(text.replace("concurrency = 1", parameters))
    return folder


def test_a_request_that_ends_its_process_is_named_and_the_rest_goes_on(tmp_path: Path):
    folder = audit(tmp_path, "if portrait == 'p03': os.abort()", concurrency=4)
    ended = ran("run", folder, "--json", code=3)
    said = json.loads(ended.stdout)
    assert (rows(folder), said["to_retry"]) == (10, 2)
    assert "SIGABRT" in said["failures"][0]["reason"]


def test_nothing_paid_is_lost_when_a_plugin_returns_nonsense(tmp_path: Path):
    folder = audit(tmp_path, "if portrait == 'p03': return None", concurrency=16, extra="[executor]\nattempts = 1")
    ended = ran("run", folder, code=3)
    assert "Traceback" not in ended.stderr
    assert calls(folder) == 12
    assert rows(folder) == 10


TIRED = """tried = HERE / f"{portrait} {seed} {len(instruction)}"
    if int(portrait[1:]) % 2 and not tried.exists():
        tried.touch()
        raise RuntimeError("busy")"""
"""Every second portrait's first try fails."""


@pytest.mark.parametrize(("how", "tries"), [("pass", 60), (TIRED, 90)], ids=["edits", "edits and tries"])
def test_a_full_disk_is_waited_for_and_loses_nothing(tmp_path: Path, how: str, tries: int):
    folder = audit(tmp_path, how, people=10, seeds=(1, 2, 3), concurrency=4)
    hold(folder, after=8)
    run = started("run", folder, "--only", "edit")
    run.wait_until(lambda: calls(folder) > 8)
    # As root a quota is not felt; a limit on the size of files is, and it can be lifted while the run goes on.
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    release(folder)
    run.wait_until(lambda: "cannot be saved" in run.said())
    assert f"{folder / 'stillme.sqlite'} cannot be written to" in run.said()
    begun = calls(folder)
    time.sleep(0.5)
    assert calls(folder) <= begun + 4, "only what was under way went on"
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _, stderr = run.communicate(timeout=300)
    assert run.returncode == 0, stderr
    assert "going on" in stderr
    assert rows(folder) == 60
    assert calls(folder) == tries, "nothing was asked for twice"
    assert rows(folder, "SELECT COUNT(*) FROM attempt") == tries - 60


def test_a_disk_that_stays_full_ends_the_run_with_a_sentence(tmp_path: Path):
    folder = audit(tmp_path, extra="[executor]\noutage_minutes = 0.02")
    stillme("run", folder, "--only", "edit")
    (folder / "calls").unlink()
    audit(tmp_path, seeds=(1, 2), extra="[executor]\noutage_minutes = 0.02")
    limit = (folder / "stillme.sqlite").stat().st_size // 4
    ended = stillme(
        "run", folder, "--only", "edit", before=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "cannot be" in ended.stderr


def test_an_outage_is_believed_after_a_few_calls(tmp_path: Path):
    """Counted where they arrive: neither one call per request, nor several."""
    folder = audit(tmp_path, people=10, seeds=range(12), extra="[executor]\noutage_minutes = 0.05")
    with serving(lambda _server, _asked: Says(status=503, body={"error": "down"})) as server:
        template = "template = { a = '{source}', b = '{instruction}' }"
        with_editor(folder, "http", f"concurrency = 16\nurl = '{server.url}'\n{template}")
        ended = stillme("run", folder, "--only", "edit", "--allow-unknown-cost")
    assert ended.returncode == 3, ended.stderr
    assert "no call has worked since" in ended.stdout
    assert 1 <= len(server.calls()) <= 40, "of 240 requests"


def test_money_spent_before_a_kill_in_an_outage_is_in_the_ledger(tmp_path: Path):
    folder = with_editor(audit(tmp_path, people=4), "flaky", "failures = 100\ncost = 0.5")
    killed_when(folder, lambda: Store.exists(folder) and rows(folder, "SELECT COUNT(*) FROM attempt") >= 4)
    tries = rows(folder, "SELECT COUNT(*) FROM attempt")
    cost = json.loads(stillme("status", folder, "--json").stdout)["cost"]
    assert cost >= 0.5 * tries >= 2.0


def test_a_call_that_hangs_ends_at_its_time_limit(tmp_path: Path):
    folder = audit(
        tmp_path,
        "if portrait == 'p01': time.sleep(600)",
        people=4,
        prompts=["O-01"],
        editor="time_limit = 5",
        extra="[executor]\nattempts = 1",
    )
    ended = stillme("run", folder, "--json")  # within its 300 s, not the call's 600
    assert ended.returncode == 3
    assert rows(folder) == 3
    assert "time limit" in json.loads(ended.stdout)["failures"][0]["reason"]


def interrupted(folder: Path, number: signal.Signals) -> Started:
    """A run that was asked to end while two calls are under way."""
    audit(folder, people=10, concurrency=2)
    hold(folder, after=3)
    run = started("run", folder, "--only", "edit")
    run.wait_until(lambda: calls(folder) > 4)
    run.send_signal(number)
    run.wait_until(lambda: "Finishing what is running" in run.said())
    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_finishes_what_is_running_and_saves_it(tmp_path: Path, number: signal.Signals):
    run = interrupted(tmp_path, number)
    release(tmp_path)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 128 + number, err
    assert "run the same command to go on" in out
    assert rows(tmp_path) == calls(tmp_path) < 20
    ran("run", tmp_path, "--only", "edit")
    assert rows(tmp_path) == calls(tmp_path) == 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_run_at_once(tmp_path: Path, number: signal.Signals):
    run = interrupted(tmp_path, number)
    run.send_signal(number)
    _, err = run.communicate(timeout=120)
    assert run.returncode == 128 + number
    assert "Traceback" not in err


def test_sigterm_during_an_import_ends_with_143_and_a_sentence(tmp_path: Path):
    folder = audit(tmp_path)
    (folder / "edit.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('begun').touch()\nwhile True: pass"
    )
    run = started("run", folder)
    run.wait_until((folder / "begun").exists)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=120)
    assert run.returncode == 143
    assert "stillme: interrupted" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("damage", ["truncated", "emptied", "replaced", "deleted"])
def test_a_picture_that_is_not_what_it_was_is_never_trusted_and_is_made_again(write_audit: Write, damage: str):
    folder = write_audit("use = 'negative'", prompts='["O-01"]', extra="[executor]\nisolate = false")
    run_stages(folder, ("edit",))
    picture = edited_picture(folder)
    whole = picture.read_bytes()
    match damage:
        case "truncated":
            picture.write_bytes(whole[: len(whole) // 2])
        case "emptied":
            picture.write_bytes(b"")
        case "replaced":
            shutil.copyfile(folder.parent / "portraits" / "p0.png", picture)
        case _:
            picture.unlink()
    assert [check.name for check in examine_run(folder) if check.state == "broken"] == ["pictures"]
    with RecordedRun.open(folder) as run, pytest.raises(StillmeError, match=picture.stem):
        seal(run, folder / "run.zip", with_images=True)
    judged = run_stages(folder, ("judge",))
    assert judged.totals.to_retry == 1
    assert "the edited picture" in judged.failures[0].reason
    run_stages(folder, ("estimate", "report"))
    assert "Pictures are lost" in (folder / "report.html").read_text()
    assert run_stages(folder, ("edit", "judge")).totals.to_retry == 0
    assert picture.read_bytes() == whole
    assert [check.name for check in examine_run(folder) if check.state == "broken"] == []


def test_a_portrait_that_is_lost_everywhere_is_named_by_the_report(write_audit: Write):
    folder = write_audit("use = 'negative'", prompts='["O-01"]', extra="[executor]\nisolate = false")
    run_stages(folder, ("edit", "judge"))
    with RecordedRun.open(folder) as run:
        portrait = run.design.portraits[0]
        run.picture(portrait.image.sha256).unlink()
    (folder.parent / "portraits" / f"{portrait.id}.png").unlink()
    run_stages(folder, ("estimate", "report"))
    assert "Missing, or no longer what they were: portraits 1." in (folder / "report.html").read_text()


def test_a_paid_picture_is_asked_for_before_it_is_paid_again(tmp_path: Path):
    folder = with_editor(audit(tmp_path, people=4, prompts=["O-01"]), "stamped", "price = 0.5")
    ran("run", folder)
    edited_picture(folder).unlink()
    asked = stillme("run", folder)
    assert "--allow-remake" in asked.stderr
    assert rows(folder, "SELECT COUNT(*) FROM edit") == 4
    ran("run", folder, "--allow-remake")
    assert rows(folder, "SELECT COUNT(*) FROM edit") == 5, "another picture came, and counts from now on"
    ran("doctor", folder)


@pytest.mark.parametrize("lost", ["some", "all"])
def test_edits_whose_rows_are_lost_are_asked_for_before_they_are_paid_again(write_audit: Write, lost: str):
    folder = write_audit("use = 'stamped'\nparameters.price = 0.5", prompts='["O-01"]')
    run_stages(folder, ("edit",), RunOptions(limit=2))
    ledger, copy = folder / "stillme.sqlite", folder.parent / "copy"
    shutil.copyfile(ledger, copy)
    run_stages(folder, ("edit",))
    for path in (folder / "images").rglob("*.png"):
        late = path.stat().st_mtime + (3600 if lost == "some" else -3600)
        os.utime(path, (late, late))
    ledger.unlink()
    if lost == "some":
        shutil.copyfile(copy, ledger)
    count, cost = (4, "2.00") if lost == "some" else (6, "3.00")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=rf"{count} pictures in .* cost up to \${cost}.*--allow-remake"):
            run_stages(folder, ("edit",))
    result = run_stages(folder, ("edit",), RunOptions(remake=True))
    assert result.totals.cost == 3.0


def test_what_a_killed_run_left_behind_is_no_lost_row(write_audit: Write):
    folder = write_audit("use = 'stamped'\nparameters.price = 0.5", prompts='["O-01"]')
    run_stages(folder, ("edit",), RunOptions(limit=2))
    (folder / "images" / "ab").mkdir(exist_ok=True)
    (folder / "images" / "ab" / f"{'ab' * 32}.png").write_bytes(b"saved, and its row was not")
    assert run_stages(folder, ("edit",)).totals.cost == 3.0


def test_a_half_written_file_is_named_whatever_its_age(write_audit: Write):
    folder = write_audit(prompts='["O-01"]')
    run_stages(folder, ("edit",))
    (folder / "images" / UNFINISHED).mkdir()
    for path in (folder / ".report.html.0123456789ab", folder / "images" / UNFINISHED / ".ab.png.0123456789ab"):
        path.touch()
    assert "2 half-written" in next(check.detail for check in examine_run(folder) if check.name == "leftover files")


def damaged(data: bytearray, root: int, damage: str) -> bytearray:
    """A ledger with a page of its edits lost, with all of them lost, or cut off."""
    size = int.from_bytes(data[16:18], "big") or 65536
    start = (root - 1) * size
    assert data[start] == 5, "an interior page, with a leaf after it"
    cell = int.from_bytes(data[start + 12 : start + 14], "big")
    leaf = int.from_bytes(data[start + cell : start + cell + 4], "big")
    match damage:
        case "leaf":
            data[(leaf - 1) * size : leaf * size] = b"\xff" * size
        case "root":
            data[start : start + size] = bytes(size)
        case _:
            del data[len(data) * 3 // 4 - 1000 :]
    return data


@pytest.mark.parametrize("damage", ["leaf", "root", "cut off"])
def test_a_damaged_ledger_is_refused_with_the_way_to_save_its_rows(tmp_path: Path, damage: str):
    folder = audit(tmp_path, people=10, seeds=(1, 2, 3, 4, 5), extra="[executor]\nisolate = false")
    ran("run", folder)
    ledger = folder / "stillme.sqlite"
    root = rows(folder, "SELECT rootpage FROM sqlite_master WHERE name = 'edit'")
    broken = damaged(bytearray(ledger.read_bytes()), root, damage)
    ledger.write_bytes(broken)
    read = ran("run", folder, "--only", "estimate", code=2)
    assert "damaged" in read.stderr
    assert "Traceback" not in read.stderr
    seen = ran("doctor", folder, code=1)
    assert f"sqlite3 {ledger} .recover" in seen.stdout
    ran("doctor", folder, "--accept-loss", code=2)
    assert ledger.read_bytes() == broken, "a damaged ledger is evidence"


def noted(folder: Path) -> dict[str, int]:
    """The rows that the run says it has saved."""
    note = folder / ROW_COUNTS
    return json.loads(note.read_text()) if note.exists() else {}


def killed_when(folder: Path, happened: Callable[[], bool]) -> None:
    """Start, and kill -9 as soon as it has happened; its editor does not answer more than ten calls before that."""
    hold(folder, after=10)
    run = started("run", folder, "--only", "edit")
    run.wait_until(happened)
    run.kill()
    run.wait()
    release(folder)


def test_a_deleted_log_is_noticed_and_can_be_given_up(tmp_path: Path):
    folder = audit(tmp_path, people=10, seeds=(1, 2))
    killed_when(folder, lambda: noted(folder).get("edit", 0) > 0)
    (folder / "stillme.sqlite-wal").unlink()
    for words in (("run", folder), ("status", folder), ("run", folder, "--only", "estimate"), ("export", folder)):
        said = ran(*words, code=2)
        assert "stillme.sqlite-wal was deleted" in said.stderr
    ran("doctor", folder, code=1)
    assert "given up" in stillme("doctor", folder, "--accept-loss").stderr
    ran("run", folder)
    assert rows(folder, "SELECT COUNT(DISTINCT key) FROM edit WHERE final = 1") == 40


def test_a_deleted_log_without_a_result_is_no_loss(tmp_path: Path):
    """Nothing was saved before the kill, so there is nothing to complain about."""
    folder = audit(tmp_path, "if not (HERE / 'go').exists(): time.sleep(600)", people=4)
    killed_when(folder, lambda: calls(folder) > 0)
    assert not noted(folder).get("edit")
    (folder / "stillme.sqlite-wal").unlink()
    (folder / "go").touch()
    ran("run", folder)
    assert rows(folder) == 8


def test_a_deleted_log_with_nothing_but_failed_tries_is_noticed(tmp_path: Path):
    """They cost money."""
    folder = audit(tmp_path, "raise RuntimeError('no')", people=4)
    killed_when(folder, lambda: noted(folder).get("attempt", 0) > 0)
    assert not noted(folder).get("edit")
    (folder / "stillme.sqlite-wal").unlink()
    said = ran("status", folder, code=2)
    assert "failed tries that were saved" in said.stderr


def test_a_note_of_saved_rows_is_whole_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Store.writing(tmp_path) as store:
        with store.transaction():
            store.execute("INSERT INTO plan (hash, requests, at) VALUES ('', 0, '')")
        before = (tmp_path / ROW_COUNTS).read_bytes()
        monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("killed here")))
        store.add_attempts([Attempt(stage="edit", key="k", number=1, error="no", retryable=True)])
        assert (tmp_path / ROW_COUNTS).read_bytes() == before
        monkeypatch.undo()


def test_a_worker_that_dies_while_it_writes_a_picture_leaves_nothing_behind(tmp_path: Path):
    folder = audit(tmp_path, "if portrait == 'p03': os.fsync = lambda _: os.abort()")
    (folder / "images" / UNFINISHED).mkdir(parents=True)
    (folder / "images" / UNFINISHED / ".earlier.png.0123456789ab").touch()
    ran("run", folder, "--only", "edit", code=3)
    assert rows(folder) == 10
    assert not (folder / "images" / UNFINISHED).exists()


def test_pictures_and_ledger_are_readable_like_other_files(tmp_path: Path):
    folder = audit(tmp_path, people=2, prompts=["O-01"])
    ran("run", folder, "--only", "edit", before=partial(os.umask, 0o027))
    for path in (edited_picture(folder), folder / "stillme.sqlite", folder / "resolved.toml"):
        assert path.stat().st_mode & 0o777 == 0o640, path


def test_estimates_work_while_a_run_goes_on_and_seconds_are_each_stages_own(tmp_path: Path):
    folder = audit(tmp_path, people=10)
    hold(folder, after=6)
    run = started("run", folder, "--json")
    run.wait_until(lambda: calls(folder) > 6)
    began = time.monotonic()
    ran("run", folder, "--only", "estimate")
    ran("report", folder)
    time.sleep(max(0.0, began + 2 - time.monotonic()))
    release(folder)
    held = time.monotonic() - began
    stdout, stderr = run.communicate(timeout=300)
    assert run.returncode == 0, stderr
    edit, judge = json.loads(stdout)["stages"]
    assert edit["seconds"] > held
    assert judge["seconds"] < edit["seconds"]


@pytest.mark.parametrize("ended", ["in an orderly way", "killed"])
def test_a_run_on_media_that_cannot_be_written_to_can_be_read(tmp_path: Path, ended: str):
    if os.getuid() != 0:
        pytest.skip("only root can mount")
    folder, media = audit(tmp_path / "run", people=10), tmp_path / "media"
    if ended == "killed":
        killed_when(folder, lambda: noted(folder).get("edit", 0) > 0)
        assert (folder / "stillme.sqlite-wal").stat().st_size
    else:
        ran("run", folder, "--only", "edit")
    media.mkdir()
    script = """
mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" || exit 77
shift 2
"$@"
"""
    alone = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), str(media), sys.executable, "-m", "stillme"]
    said = subprocess.run([*alone, "status", str(media), "--json"], capture_output=True, text=True)
    if said.returncode in (1, 77):
        pytest.skip(f"mounting is not allowed here: {said.stderr}")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["editors"][0]["done"] > 0
    for verb in ("report", "run"):
        refused = subprocess.run([*alone, verb, str(media)], capture_output=True, text=True)
        assert refused.returncode == 2, refused.stderr
        assert "Read-only file system" in refused.stderr
        assert "Traceback" not in refused.stderr
