"""Pictures in an object store: what keeping and reading one costs beside the bare call, over loopback.

moto's S3 runs in a process of its own, so that its time does not count. Seconds are of this process's CPU: over a real
network both wait alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import boto3
import numpy as np
import s3fs

from bench._figures import note
from stillme.runs.store.buckets import PicturesInBuckets
from stillme.runs.store.pictures import PicturePlace, Pictures
from tests.buckets import KEY, SECRET, free_port

COUNT, BYTES = 200, 150_000
_SERVER = "from moto.server import main; import sys; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


def main() -> None:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _compare(f"http://127.0.0.1:{port}", Path(scratch))
    finally:
        server.kill()
        server.wait()


def _compare(url: str, scratch: Path) -> None:
    access = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    os.environ.update(access | {"AWS_DEFAULT_REGION": "us-east-1"})
    client = _client(url)
    files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    rng = np.random.default_rng(0)
    data = [b"\x89PNG" + rng.bytes(BYTES) for _ in range(COUNT)]
    place = PicturePlace(scratch / "images", ("s3://bench/audit",))
    pictures = PicturesInBuckets(place, scratch / "cache")
    pictures.prepare()
    local = Pictures(scratch / "local")

    def boto_put(content: bytes) -> None:
        client.put_object(Bucket="bench", Key=f"boto/{hash(content)}", Body=content)

    boto = _milliseconds(boto_put, data)
    bare = _milliseconds(lambda content: files.pipe_file(f"bench/bare/{hash(content)}", content), data)
    kept = _milliseconds(pictures.add, data)
    here = _milliseconds(local.add, data)
    hashes = [local.add(content) for content in data]
    other = PicturesInBuckets(place, scratch / "empty")
    got = _milliseconds(lambda content: files.cat_file(f"bench/bare/{hash(content)}"), data)
    read = _milliseconds(other.intact, hashes)
    again = _milliseconds(other.intact, hashes)
    note("pictures", "keep one in a bucket", kept, "ms CPU", peer="fsspec put", of=bare)
    note("pictures", "keep one in a bucket", kept, "ms CPU", peer="boto3 put", of=boto)
    note("pictures", "keep one in a bucket", kept, "ms CPU", peer="in the run folder", of=here)
    note("pictures", "bring one here", read, "ms CPU", peer="fsspec get", of=got)
    print(
        f"put: boto3 {boto:.2f}, fsspec {bare:.2f}, stillme {kept:.2f}, in the run folder {here:.2f} ms CPU a picture"
    )
    print(f"get: fsspec {got:.2f}, stillme {read:.2f}, from the copy {again:.3f} ms CPU a picture of {BYTES:,} bytes")


def _client(url: str):
    client = boto3.client("s3", endpoint_url=url)
    end = time.monotonic() + 60
    while True:
        try:
            client.create_bucket(Bucket="bench")
            return client
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def _milliseconds(call: Callable[..., object], values: Sequence[object]) -> float:
    call(values[0])  # connect
    start = time.process_time()
    for value in values:
        call(value)
    return 1e3 * (time.process_time() - start) / len(values)
