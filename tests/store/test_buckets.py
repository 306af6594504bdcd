"""Pictures in an object store: found as they were, or noticed as lost; and never lost because nobody answers."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core import addresses
from stillme.core.addresses import picture_store_problem
from stillme.core.errors import PicturesUnreachable
from stillme.core.types import ImageFile
from stillme.runs.store import Store
from stillme.runs.store.buckets import MARK, PicturesInBuckets, PicturesToShow, pictures_at
from stillme.runs.store.buckets import Bucket as StillmeBucket
from stillme.runs.store.pictures import DAMAGED, HERE, PicturePlace, Pictures
from tests.buckets import SECRET, Bucket, Fault

PICTURE = b"\x89PNG" + bytes(range(256)) * 20
SHA256 = hashlib.sha256(PICTURE).hexdigest()
NAME = f"{SHA256[:2]}/{SHA256}.png"


@pytest.fixture
def pictures(bucket: Bucket, tmp_path: Path) -> Pictures:
    made = opened(bucket, tmp_path)
    made.prepare()
    return made


def opened(bucket: Bucket, tmp_path: Path, cache: str = "cache") -> PicturesInBuckets:
    place = PicturePlace(tmp_path / "images", (bucket.address,))
    return PicturesInBuckets(place, tmp_path / cache)


def elsewhere(bucket: Bucket, tmp_path: Path) -> PicturesInBuckets:
    """As another machine sees it: without copies, and with connections of its own."""
    return opened(bucket, tmp_path, cache=f"cache-{time.monotonic_ns()}")


def test_a_picture_is_in_the_bucket_when_it_was_added(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    assert pictures.add(PICTURE) == SHA256
    assert bucket.objects() == {NAME: PICTURE, MARK: bucket.objects()[MARK]}
    there = elsewhere(bucket, tmp_path).intact(SHA256)
    assert there.read_bytes() == PICTURE
    assert not (tmp_path / "images").exists()


def test_a_picture_is_brought_here_once_and_only_if_it_is_wanted(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    pictures.add(PICTURE)
    there = elsewhere(bucket, tmp_path)
    assert there.find(SHA256) is None
    assert there.where(SHA256) == there.where(SHA256)
    assert bucket.proxy.count("GET") == 0
    for _ in range(3):
        assert there.intact(SHA256) == there.where(SHA256)
    assert bucket.proxy.count("GET", NAME) == 1


def test_many_threads_may_add_the_same_picture(pictures: Pictures, bucket: Bucket):
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(pictures.add, [PICTURE] * 16))
    assert bucket.pictures() == {f"{SHA256}.png": PICTURE}
    assert pictures.intact(SHA256)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (403, "refuses access"),
        (404, "no such bucket"),
        (500, "cannot be reached"),
        (503, "cannot be reached"),
        ("hang up", "cannot be reached"),
        ("dawdle", "cannot be reached"),
    ],
)
def test_an_upload_that_fails_is_a_sentence_without_secrets(
    bucket: Bucket, fault: Fault, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("stillme.runs.store.buckets._CALL_SECONDS", 1.0 if fault == "dawdle" else 30.0)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    store = StillmeBucket(bucket.address)
    bucket.proxy.fault = lambda method, path: fault if method == "PUT" else None
    with pytest.raises(PicturesUnreachable, match=words) as raised:
        store.put(NAME, PICTURE)
    assert bucket.address in str(raised.value)
    assert SECRET not in str(raised.value)
    bucket.proxy.fault = lambda method, path: None
    store.put(NAME, PICTURE)
    assert bucket.objects()[NAME] == PICTURE


def test_a_moments_fault_is_not_even_noticed(pictures: Pictures, bucket: Bucket):
    faults: Iterator[Fault | None] = iter([500])
    bucket.proxy.fault = lambda method, path: next(faults, None)
    assert pictures.add(PICTURE) == SHA256
    assert bucket.proxy.count("PUT", NAME) == 2


@pytest.mark.parametrize("fault", [403, 500, "hang up", "cut"])
def test_nothing_is_lost_because_nobody_answers(
    pictures: Pictures, bucket: Bucket, tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
):
    pictures.add(PICTURE)
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    there = elsewhere(bucket, tmp_path)
    bucket.proxy.fault = lambda method, path: fault
    with pytest.raises(PicturesUnreachable):
        there.intact(SHA256)
    with pytest.raises(PicturesUnreachable):
        list(there.lost([SHA256]))
    if fault != "cut":  # what has no body cannot be cut
        with pytest.raises(PicturesUnreachable):
            there.gone([SHA256])
    assert pictures.intact(SHA256), "a copy that is here needs nobody"
    shown = PicturesToShow(there)
    assert shown.path_of(SHA256) is None
    assert bucket.address in shown.unreachable
    bucket.proxy.fault = lambda method, path: None
    assert there.intact(SHA256)


def test_half_a_picture_is_fetched_again(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    pictures.add(PICTURE)
    faults: Iterator[Fault | None] = iter(["shorten"])
    bucket.proxy.fault = lambda method, path: next(faults, None) if path.endswith(NAME) else None
    found = elsewhere(bucket, tmp_path).intact(SHA256)
    assert found.read_bytes() == PICTURE


@pytest.mark.parametrize("how", ["bucket deleted", "emptied", "another place"])
def test_a_store_that_is_not_there_is_not_a_store_without_pictures(
    pictures: Pictures, bucket: Bucket, tmp_path: Path, how: str
):
    pictures.add(PICTURE)
    if how == "another place":
        place = PicturePlace(tmp_path / "images", (f"{bucket.address}-of-somebody-else",))
        there = PicturesInBuckets(place, tmp_path / "other")
    else:
        for name in bucket.objects():
            bucket.delete(name)
        if how == "bucket deleted":
            bucket.client.delete_bucket(Bucket=bucket.name)
        there = elsewhere(bucket, tmp_path)
    for ask in (there.intact, lambda sha256: there.gone([sha256]), lambda _: there.require()):
        with pytest.raises(PicturesUnreachable, match=r"is missing there\. If the pictures were moved"):
            ask(SHA256)


def test_what_was_kept_before_is_read_where_it_is(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    sha256 = pictures.add(PICTURE)
    Pictures(tmp_path / "images").add(b"of the run folder")
    newer = f"s3://{bucket.name}/newer"
    moved = pictures_at(PicturePlace(tmp_path / "images", (newer, bucket.address)))
    moved.prepare()
    third = moved.add(b"new")
    mine = hashlib.sha256(b"of the run folder").hexdigest()
    assert moved.gone([sha256, mine, third, "00" * 32]) == {"00" * 32}
    found = [moved.intact(name).read_bytes() for name in (sha256, mine, third)]
    assert found == [PICTURE, b"of the run folder", b"new"]
    assert list(bucket.pictures()) == [f"{sha256}.png"], "new ones go to the new address"


def test_a_place_that_was_used_before_may_be_abolished(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    newer = f"s3://{bucket.name}/newer"
    moved = pictures_at(PicturePlace(tmp_path / "images", (newer, bucket.address)))
    moved.prepare()
    bucket.delete(MARK)
    assert moved.gone([SHA256]) == {SHA256}
    assert moved.intact(SHA256) is None


def test_many_pictures_are_looked_up_by_listing(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    hashes = [pictures.add(b"picture %d" % number) for number in range(70)]
    bucket.put(f"{hashes[0][:2]}/{hashes[0]}.bin", b"")
    bucket.delete(f"{hashes[1][:2]}/{hashes[1]}.bin")
    there = elsewhere(bucket, tmp_path)
    assert there.gone(hashes) == set(hashes[:2])
    assert bucket.proxy.count("HEAD") < 20
    there.add(b"picture 1")
    assert there.gone(hashes) == {hashes[0]}, "what came after the listing is seen"
    assert {name for name in there.names() if not name.startswith(hashes[0])} >= {f"{name}.bin" for name in hashes[1:]}


def test_files_are_taken_that_no_place_has(pictures: Pictures, bucket: Bucket, tmp_path: Path):
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(b"\x89PNG" + bytes([number]))
    images = [ImageFile.of(file) for file in files]
    files[2].write_bytes(b"changed since")
    pictures.add(files[0].read_bytes())
    before = bucket.proxy.count("PUT")
    pictures.take_all(images)
    assert bucket.proxy.count("PUT") == before + 1
    assert len(bucket.pictures()) == 2


def test_the_place_can_be_sent_to_another_process_and_has_no_credentials(pictures: Pictures, tmp_path: Path):
    sent = pickle.dumps(pictures.place)
    assert SECRET.encode() not in sent
    assert isinstance(pictures_at(pickle.loads(sent)), PicturesInBuckets)


def test_a_machine_that_can_keep_no_copy_says_so_and_uploads_all_the_same(bucket: Bucket, tmp_path: Path):
    (tmp_path / "cache").write_text("not a folder")
    made = opened(bucket, tmp_path)
    made.prepare()
    made.add(PICTURE)
    assert bucket.pictures() == {f"{SHA256}.png": PICTURE}
    with pytest.raises(PicturesUnreachable, match=r"No copy of a picture can be kept in .*STILLME_HOME"):
        made.intact(SHA256)


# -- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["s3://bucket/audit", "gs://b", "az://container/x", "abfs://c@account.dfs.core.windows.net/x"]
)
def test_addresses_of_stores_are_taken(address: str):
    assert picture_store_problem(address) == ""


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://key:secret@bucket/audit", "credentials"),
        ("s3://key@bucket/audit", "credentials"),
        ("abfs://user:secret@account/x", "credentials"),
        ("az://container/x?sig=secret", "after `?`"),
        ("s3:///audit", "names no bucket"),
        ("file:///shared/a", "not the address of a picture store"),
        ("s3://bucket/../other", "`..`"),
        ("http://somewhere/audit", "not the address of a picture store"),
        ("simplecache::s3://bucket", "not the address of a picture store"),
        ("memory://gone-with-the-process", "not the address of a picture store"),
        ("audit-pictures", "not the address of a picture store"),
    ],
)
def test_other_addresses_are_refused_without_repeating_secrets(address: str, words: str):
    problem = picture_store_problem(address)
    assert words in problem
    assert "secret" not in problem


def test_a_run_from_elsewhere_cannot_send_its_reader_to_a_server(tmp_path: Path):
    with Store.writing(tmp_path / "run") as store:
        store.execute("INSERT INTO place (address, at) VALUES ('http://127.0.0.1:1/steal', '')")
    with Store.reading(tmp_path / "run") as store:
        assert store.pictures.find(SHA256) is None, "who wants no picture can read on"
        for ask in (store.pictures.intact, lambda sha256: store.pictures.gone([sha256]), store.pictures.set_aside):
            with pytest.raises(PicturesUnreachable, match="not the address of a picture store"):
                ask(SHA256)


def test_a_missing_package_is_named(tmp_path: Path):
    with pytest.raises(PicturesUnreachable, match=r"gs://bucket/audit needs gcsfs, .* `pip install \"gcsfs\"`"):
        StillmeBucket("gs://bucket/audit").get(NAME)


# -- the ledger -----------------------------------------------------------------------------------------------------


def test_a_run_says_where_its_pictures_are(bucket: Bucket, tmp_path: Path):
    run = tmp_path / "run"
    with Store.writing(run) as store:
        assert store.places.current == HERE
        local = store.pictures.add(b"local")
        store.keep_pictures_at(bucket.address)
        remote = store.pictures.add(PICTURE)
        store.keep_pictures_at(bucket.address)
    with Store.reading(run) as store:
        assert store.places.addresses() == (bucket.address,)
        assert store.pictures.gone([local, remote]) == set()
    with Store.writing(run) as store:
        store.keep_pictures_at(HERE)
        again = store.pictures.add(b"local again")
        assert store.pictures.find(again) == run / "images" / again[:2] / f"{again}.bin"
        assert store.pictures.gone([local, remote, again]) == set()
    assert SECRET.encode() not in (run / "stillme.sqlite").read_bytes()


def test_a_place_that_cannot_be_used_is_not_recorded(bucket: Bucket, tmp_path: Path):
    bucket.proxy.fault = lambda method, path: 403
    with Store.writing(tmp_path / "run") as store:
        with pytest.raises(PicturesUnreachable):
            store.keep_pictures_at(bucket.address)
        assert store.places.addresses() == ()


# -- any order of events --------------------------------------------------------------------------------------------

CONTENTS = [b"\x89PNG one", b"\xff\xd8 two", b"RIFF....WEBP three", b"four"]
EVENTS = ["add", "delete", "truncate", "replace", "forget", "damage copy", "set aside", "put back", "ask"]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(CONTENTS)), max_size=25), st.booleans())
def test_whatever_happens_a_picture_is_what_it_was_or_noticed(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, bytes]], by_listing: bool
):
    import fsspec

    folder = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(addresses.PICTURE_STORES, "memory", "")  # type: ignore[arg-type]
        patch.setattr("stillme.runs.store.buckets._ASK_SINGLY", 0 if by_listing else 64)
        address = f"memory://{folder.name}/store"
        files, root = fsspec.core.url_to_fs(address)
        place, copies = PicturePlace(folder / "images", (address,)), 0
        pictures = PicturesInBuckets(place, folder / f"cache-{copies}")
        pictures.prepare()
        there: dict[str, bytes] = {}
        for event, content in events:
            sha256 = hashlib.sha256(content).hexdigest()
            name = next((name for name in files.find(root) if f"/{sha256}." in name and DAMAGED not in name), "")
            if event == "add":
                pictures.add(content)
                there[sha256] = content
            elif event == "forget":
                copies += 1
                pictures = PicturesInBuckets(place, folder / f"cache-{copies}")
            elif event == "damage copy" and (copy := pictures.find(sha256)):
                copy.write_bytes(os.urandom(5))
            elif event == "set aside":
                pictures.set_aside(sha256)
                if there.get(sha256) != content:
                    there.pop(sha256, None)
            elif event == "put back" and pictures.put_back({sha256}):
                there[sha256] = content
            elif name and event in ("delete", "truncate", "replace"):
                changed = {"truncate": content[:-1], "replace": b"other"}.get(event)
                files.rm_file(name) if changed is None else files.pipe_file(name, changed)
                there.pop(sha256) if changed is None else there.update({sha256: changed})
            fresh = PicturesInBuckets(place, folder / f"fresh-{len(list(folder.iterdir()))}")
            hashes = [hashlib.sha256(known).hexdigest() for known in CONTENTS]
            assert fresh.gone(hashes) == {known for known in hashes if known not in there}
            wrong = {lost.sha256: lost.how for lost in fresh.lost(hashes)}
            assert wrong == {
                known: "damaged" if known in there else "missing"
                for known, right in zip(hashes, CONTENTS, strict=True)
                if there.get(known) != right
            }
            found = pictures.intact(sha256)
            assert found is None or found.read_bytes() == content
            assert (found is not None) or there.get(sha256) != content
        files.rm(root, recursive=True)
