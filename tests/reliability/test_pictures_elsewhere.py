"""A run whose pictures are in a bucket is the run that it would be in its folder, whatever happens on the way."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillme.api import pipeline
from stillme.runs.store import Store
from stillme.runs.store.buckets import MARK, PicturesInBuckets
from tests.buckets import KEY, S3, SECRET, Bucket, free_port
from tests.processes import Started, ran, stillme
from tests.reliability.faulty import ask, audit, calls, die_after, hold, release, rows

ROWS = (
    "SELECT key, portraits, prompt, arm, instruction, editor, seed, outcome, image, message FROM edit ORDER BY key",
    "SELECT key, edit, axis, outcome, score, reason FROM assessment, judgement WHERE assessment = id ORDER BY 1, 3",
)


def in_bucket(folder: Path, bucket: Bucket, how: str = "pass", **changed: object) -> Path:
    folder.mkdir(exist_ok=True)
    extra = f'{changed.pop("extra", "")}\n[pictures]\nstore = "{bucket.address}"'
    return audit(folder, how, extra=extra, **changed)  # type: ignore[arg-type]


def rows_of(folder: Path) -> list[list[tuple[object, ...]]]:
    return [ask(folder, query) for query in ROWS]


def files_of(folder: Path) -> dict[str, bytes]:
    """All but drafts: a kill in the middle of a file leaves one, and it is removed when it is an hour old."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files}


def numbers_of(report: Path) -> list[str]:
    """What the page says in numbers, without pictures, links to them, and how long the work took."""
    apart = r'<script.*?</script>|src="data:[^"]*"|<section id="cost">.*?</section>'
    page = re.sub(apart, "", report.read_text("utf-8"), flags=re.DOTALL)
    numbers = re.findall(r">([^<>]*\d[^<>]*)<", page)
    assert len(numbers) > 100
    return numbers


class Finished(NamedTuple):
    """A run with all its pictures in a bucket."""

    bucket: Bucket
    folder: Path
    home: Path
    said: str
    objects: dict[str, bytes]


@pytest.fixture(scope="module")
def made_once(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    scratch = tmp_path_factory.mktemp("finished")
    with s3.bucket() as bucket:
        folder, home = in_bucket(scratch / "audit", bucket), scratch / "home"
        said = ran("run", folder, environment=bucket.environment | {"STILLME_HOME": str(home)})
        yield Finished(bucket, folder, home, said.stdout + said.stderr, bucket.objects())


@pytest.fixture
def finished(made_once: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """A copy of the run for each test, with the bucket as the run left it."""
    bucket = made_once.bucket
    for name, value in (bucket.environment | {"STILLME_HOME": str(tmp_path / "home")}).items():
        monkeypatch.setenv(name, value)
    there = bucket.objects()
    for name in there.keys() - made_once.objects.keys():
        bucket.delete(name)
    for name, data in made_once.objects.items():
        if there.get(name) != data:
            bucket.put(name, data)
    bucket.proxy.fault = lambda method, path: None
    bucket.proxy.asked.clear()
    folder = shutil.copytree(made_once.folder, tmp_path / "audit")
    return made_once._replace(folder=folder, home=shutil.copytree(made_once.home, tmp_path / "home"))


# -- the same run ---------------------------------------------------------------------------------------------------


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=2, unique=True),
    prompts=st.lists(st.sampled_from(["O-01", "O-02", "V-01"]), min_size=1, max_size=2, unique=True),
    suffix=st.sampled_from(["PNG", "JPEG", "WEBP"]),
)
def test_tables_exports_and_report_are_those_of_a_local_run(
    s3: S3, tmp_path_factory: pytest.TempPathFactory, seeds: Sequence[int], prompts: Sequence[str], suffix: str
):
    as_file = f"import io; b = io.BytesIO(); image.point(lambda v: 255 - v).save(b, '{suffix}'); return b.getvalue()"
    scratch = tmp_path_factory.mktemp("same")
    with s3.bucket() as bucket, pytest.MonkeyPatch.context() as patch:
        for name, value in (bucket.environment | {"STILLME_HOME": str(scratch / "home")}).items():
            patch.setenv(name, value)
        for name, extra in (("here", ""), ("there", f'[pictures]\nstore = "{bucket.address}"')):
            (scratch / name).mkdir()
            # Both from the same inputs, so that nothing but the place of pictures differs.
            made = audit(scratch, as_file, people=4, seeds=seeds, prompts=prompts, extra=extra)
            options = pipeline.RunOptions(out=scratch / name)
            summary = pipeline.run_stages(made, ("edit", "judge", "estimate", "report"), options)
            assert summary.ended is pipeline.Ended.COMPLETE
        here, there = scratch / "here", scratch / "there"
        assert rows_of(there) == rows_of(here)
        assert files_of(there / "tables") == files_of(here / "tables")
        assert numbers_of(there / "report.html") == numbers_of(here / "report.html")
        assert bucket.pictures() == files_of(here / "images")
        assert not (there / "images").exists()
        for folder in (here, there):
            ran("export", folder, "--rows", "jsonl")
        left, right = (
            [
                {name: value for name, value in json.loads(line).items() if name not in ("at", "seconds")}
                for line in text
            ]
            for text in ((folder / "export" / "edits.jsonl").read_text().splitlines() for folder in (here, there))
        )
        assert left == right
        assert left


def test_a_bundle_holds_the_pictures_and_needs_no_bucket(finished: Finished, tmp_path: Path):
    bucket, folder = finished.bucket, finished.folder
    shutil.rmtree(tmp_path / "home")
    ran("export", folder, "--bundle", tmp_path / "run.zip", "--with-images")
    nowhere = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    ran("verify", tmp_path / "run.zip", environment=nowhere)
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(tmp_path / "run.zip", unpacked)
    assert files_of(unpacked / "images") == bucket.pictures()


# -- what a reader sees ---------------------------------------------------------------------------------------------


def test_numbers_need_no_picture_and_what_does_says_so_in_a_sentence(finished: Finished, tmp_path: Path):
    bucket, folder = finished.bucket, finished.folder
    shutil.rmtree(tmp_path / "home")
    nowhere = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    before = files_of(folder / "tables")
    again = shutil.copytree(folder, tmp_path / "again")
    for words in (
        ["status", folder],
        ["run", folder, "--only", "estimate"],
        ["gate", folder, "--rule", "success >= 1%", "--allow-inconclusive"],
        ["export", folder],
        ["compare", folder, again, "--html", tmp_path / "compared.html"],
        ["report", folder],
    ):
        said = ran(*words, environment=nowhere)
        assert "Traceback" not in said.stderr
    assert files_of(folder / "tables") == before
    assert "The report lacks pictures" in said.stderr
    assert f"{bucket.address} cannot be reached" in (folder / "report.html").read_text("utf-8")
    assert "Pictures are lost." not in (folder / "report.html").read_text("utf-8")
    for words in (["run", folder], ["export", folder, "--bundle", tmp_path / "b.zip", "--with-images"]):
        said = ran(*words, environment=nowhere, code=2)
        assert said.stderr.strip().splitlines()[-1].startswith(f"stillme: {bucket.address} cannot be reached")
        assert "Traceback" not in said.stderr
    examined = ran("doctor", folder, environment=nowhere, code=1)
    (pictures,) = [line for line in examined.stdout.splitlines() if "✗  pictures" in line]
    assert f"{bucket.address} cannot be reached" in pictures
    assert rows(folder) == 12, "nothing was made again because nobody answered"


def test_a_report_brings_each_picture_here_once(finished: Finished, tmp_path: Path):
    bucket, folder = finished.bucket, finished.folder
    page = (folder / "report.html").read_bytes()
    shutil.rmtree(tmp_path / "home")
    bucket.proxy.asked.clear()
    for _ in range(2):
        ran("report", folder)
    fetched = {path: count for (verb, path), count in bucket.proxy.asked.items() if verb == "GET" and ".png" in path}
    assert 2 <= len(fetched) <= len(bucket.pictures())
    assert set(fetched.values()) == {1}
    assert (folder / "report.html").read_bytes() == page


def test_status_and_doctor_tell_where_the_pictures_are(finished: Finished, tmp_path: Path):
    bucket, folder = finished.bucket, finished.folder
    assert f"pictures {bucket.address}" in stillme("status", folder).stdout
    assert json.loads(stillme("status", folder, "--json").stdout)["pictures"] == bucket.address
    name = next(name for name in bucket.objects() if "/" in name)
    bucket.put(name, bucket.objects()[name][:-1])
    bucket.put("00/" + "0" * 64 + ".png", b"of another run")
    listed = ran("doctor", folder)
    assert f"are in {bucket.address}, none empty; whether they are what they were, --download tells" in listed.stdout
    assert "1 pictures that no row names, perhaps of other runs" in listed.stdout
    read = ran("doctor", folder, "--download", code=1)
    assert f"1 of {len(bucket.pictures()) - 1} are not what they were" in read.stdout
    assert "is damaged" in read.stdout
    assert "damaged picture set aside" in stillme("doctor", folder, "--accept-loss", "--download").stderr
    assert "is missing" in stillme("doctor", folder).stdout


def test_no_credential_is_kept_or_said(finished: Finished):
    bucket, folder = finished.bucket, finished.folder
    bucket.proxy.fault = lambda method, path: 403
    said_more = [stillme(*words, folder) for words in (["run"], ["doctor"], ["report"])]
    assert "refuses access" in said_more[0].stderr
    kept = b"".join(path.read_bytes() for path in (*folder.rglob("*"), *finished.home.rglob("*")) if path.is_file())
    told = finished.said + "".join(result.stdout + result.stderr for result in said_more)
    for secret in (SECRET, KEY):
        assert secret.encode() not in kept
        assert secret not in told


# -- what goes wrong while it runs ----------------------------------------------------------------------------------


def test_a_bucket_that_takes_nothing_stops_a_run_before_anything_is_paid(bucket: Bucket, tmp_path: Path):
    folder = in_bucket(tmp_path / "audit", bucket)
    bucket.proxy.fault = lambda method, path: 403 if method == "PUT" else None
    said = ran("run", folder, code=2)
    assert "refuses access" in said.stderr
    assert calls(folder) == 0


def test_uploads_that_fail_are_tried_again_and_no_edit_is_asked_for_twice(bucket: Bucket, tmp_path: Path):
    folder = in_bucket(tmp_path / "audit", bucket, people=10)
    works = [True]
    bucket.proxy.fault = lambda method, path: (
        500 if not works[0] and method == "PUT" and not path.endswith(MARK) else None
    )
    hold(folder, after=5)
    run = Started("run", folder)
    run.wait_until(lambda: calls(folder) > 5)
    works[0] = False
    release(folder)
    run.wait_until(lambda: "results cannot be saved" in run.said())
    works[0] = True
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert "saved; going on" in said
    assert calls(folder) == rows(folder) == 20
    with Store.reading(folder) as store:
        assert store.pictures.gone(store.pictures_named()) == set()


def test_an_outage_that_lasts_ends_the_run_and_the_next_one_goes_on(bucket: Bucket, tmp_path: Path):
    folder = in_bucket(tmp_path / "audit", bucket, people=10, extra="[executor]\noutage_minutes = 0.05")
    lasting = [True]
    bucket.proxy.fault = lambda method, path: (
        500 if lasting[0] and method == "PUT" and bucket.proxy.count("PUT", ".png") > 15 else None
    )
    said = ran("run", folder, code=2)
    assert f"{bucket.address} cannot be reached" in said.stderr
    assert "Traceback" not in said.stderr
    with Store.reading(folder) as store:
        pictures = store.pictures
        assert isinstance(pictures, PicturesInBuckets)
        lasting[0] = False
        assert pictures.gone(store.pictures_named()) == set(), "a row names a picture that is not there"
    ran("run", folder)
    assert rows(folder) == 20


def test_kills_at_random_moments_change_nothing(bucket: Bucket, tmp_path: Path):
    (tmp_path / "undisturbed").mkdir()
    for name, extra in (("undisturbed", ""), ("killed", f'[pictures]\nstore = "{bucket.address}"')):
        (tmp_path / name).mkdir(exist_ok=True)
        audit(tmp_path / name, seeds=(1, 2, 3), concurrency=2, extra=extra)
    ran("run", tmp_path / "undisturbed")
    killed, chance = tmp_path / "killed", random.Random(5)
    for _ in range(2):
        dying = partial(die_after, chance.randint(1, 15))
        assert stillme("run", killed, before=dying).returncode == -signal.SIGKILL
    ran("run", killed)
    assert rows_of(killed) == rows_of(tmp_path / "undisturbed")
    assert files_of(killed / "tables") == files_of(tmp_path / "undisturbed" / "tables")
    assert bucket.pictures() == files_of(tmp_path / "undisturbed" / "images")


def test_lost_pictures_come_back_from_copies_else_they_are_made_again(finished: Finished, tmp_path: Path):
    bucket, folder = finished.bucket, finished.folder
    before, edited = bucket.objects(), _edited_names(folder)
    for name in edited[:2]:
        bucket.delete(name)
    ran("run", folder)
    assert bucket.objects() == before
    assert calls(folder) == 12, "copies were here"
    shutil.rmtree(tmp_path / "home")
    for name in edited[:2]:
        bucket.delete(name)
    said = ran("run", folder)
    assert "pictures of earlier edits are missing (" in said.stderr
    assert calls(folder) == 12 + sum(_uses(folder, name) for name in edited[:2])
    assert bucket.objects() == before


def test_a_damaged_object_is_never_shown_to_a_judge(bucket: Bucket, tmp_path: Path):
    folder = in_bucket(tmp_path / "audit", bucket)
    ran("run", folder, "--only", "edit")
    shutil.rmtree(tmp_path / "home")
    name = _edited_names(folder)[0]
    bucket.put(name, bucket.objects()[name][:-3])
    said = ran("run", folder, "--only", "judge", code=3)
    assert f"the edited picture {Path(name).name} is missing" in said.stdout + said.stderr
    ran("run", folder)
    assert bucket.objects()[f"{name}.damaged"]
    assert rows(folder, "SELECT COUNT(DISTINCT edit) FROM assessment WHERE final = 1") == 12


def _edited_names(folder: Path) -> list[str]:
    hashes = ask(folder, "SELECT DISTINCT image FROM edit WHERE image IS NOT NULL ORDER BY 1")
    return [f"{sha[:2]}/{sha}.png" for (sha,) in hashes]


def _uses(folder: Path, name: str) -> int:
    return rows(folder, f"SELECT COUNT(DISTINCT key) FROM edit WHERE image = '{Path(name).stem}'")


# -- places ---------------------------------------------------------------------------------------------------------


def test_shards_share_a_bucket_and_merging_copies_nothing(bucket: Bucket, tmp_path: Path):
    folder = in_bucket(tmp_path / "audit", bucket)
    for number in (1, 2):
        ran("run", folder, "--only", "edit", "--shard", f"{number}/2")
    before = bucket.proxy.count("PUT", ".png")
    shards = [folder / "shards" / f"{number}-of-2" for number in (1, 2)]
    ran("merge", *shards, "--into", tmp_path / "all")
    assert bucket.proxy.count("PUT", ".png") == before
    assert bucket.proxy.count("GET", ".png") == 0
    with Store.reading(tmp_path / "all") as store:
        assert store.places.addresses() == (bucket.address,)
        assert store.pictures.gone(store.pictures_named()) == set()


def test_runs_with_different_places_merge_into_one_that_reads_both(bucket: Bucket, tmp_path: Path):
    folder = in_bucket(tmp_path / "audit", bucket)
    ran("run", folder, "--only", "edit", "--shard", "1/3")
    audit(folder, extra="")
    ran("run", folder, "--only", "edit", "--shard", "2/3")
    audit(folder, extra=f'[pictures]\nstore = "s3://{bucket.name}/newer"')
    ran("run", folder, "--only", "edit", "--shard", "3/3")
    shards = [folder / "shards" / f"{number}-of-3" for number in (1, 2, 3)]
    for order, first in ((shards, bucket.address), (shards[::-1], f"s3://{bucket.name}/newer"), (shards[1:], "")):
        into = tmp_path / f"from-{order[0].name}"
        ran("merge", *order, "--into", into)
        with Store.reading(into) as store:
            assert store.places.current == first
            named = set(store.pictures_named())
            assert {path.stem for sha256 in named if (path := store.pictures.intact(sha256))} == named
    ran("report", tmp_path / "from-1-of-3")


def test_a_run_may_move_and_take_over_from_one_elsewhere(finished: Finished, tmp_path: Path):
    bucket, folder = finished.bucket, finished.folder
    made = calls(folder)
    audit(folder, extra="")
    ran("run", folder)
    ran("doctor", folder, "--download")
    audit(folder, extra=f'[reuse]\nruns = ["{folder}"]')
    ran("run", folder, "--out", tmp_path / "again")
    assert calls(folder) == made, "nothing was made again"
    assert set(files_of(tmp_path / "again" / "images")) == set(bucket.pictures())
