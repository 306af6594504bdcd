"""Prices, waiting times, pictures: the parts that every adapter is made of."""

from __future__ import annotations

import asyncio
import io
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from email.utils import formatdate
from pathlib import Path

import pytest
from PIL import Image

from stillme.core import images
from stillme.core.errors import UnreadableImage
from stillme.core.files import packaged_toml
from stillme.core.http import client
from stillme.core.http.replies import CallFailed, Usage, retry_after
from stillme.core.images.sending import encode_for_upload
from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import ModelPrice, dollars
from stillme.editors.hosted.editor import from_base64
from tests import profiles


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-4"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_a_time_to_wait_may_be_a_date_or_in_geminis_body():
    assert retry_after({"Retry-After": formatdate(time.time() + 30, usegmt=True)}) == pytest.approx(30, abs=3)
    assert retry_after({}, '{"error": {"details": [{"@type": "…RetryInfo", "retryDelay": "34.5s"}]}}') == 34.5


COSTS = [
    # what is charged, what was used, dollars; None where no one can tell
    (
        ModelPrice(input_text=1, output_image=10, image=0.5, second=0.01),
        Usage(input_text=1_000_000, output_image=100_000, images=1, seconds=3),
        1 + 1 + 0.5 + 0.03,
    ),
    (ModelPrice(first_megapixel=1, further_megapixel=1), Usage(sizes=[(512, 512)]), 0.0),  # none was made
    (None, Usage(images=1), None),
    (ModelPrice(image=0.04), Usage(unknown=True), None),  # accepted, and cannot be followed
    (ModelPrice(output_image=30), Usage(images=1), None),  # no tokens were reported
    (ModelPrice(input_text=5, output_image=30), Usage(images=1, input_text=100), None),  # not those of the picture
    (ModelPrice(second=0.001), Usage(images=1), None),  # no time was reported
]


@pytest.mark.parametrize(("price", "usage", "cost"), COSTS)
def test_a_cost_is_the_sum_of_what_is_charged_for_and_unknown_is_not_zero(
    price: ModelPrice | None, usage: Usage, cost: float | None
):
    assert dollars(price, usage) == (None if cost is None else pytest.approx(cost))


def test_the_catalogue_is_whole_and_dated():
    assert packaged_toml("stillme.editors.hosted", "catalogue.toml")["read"] >= date(2026, 11, 15)
    for name in ("openai", "gemini", "fal", "replicate", "bfl"):
        service = catalogue.service(name)
        assert service.default
        assert service.base_url.startswith("https://")
        assert service.facts("a model of tomorrow").inputs == service.inputs
    assert catalogue.service("fal").facts("fal-ai/flux-2-pro/edit").images == "image_urls[]"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_common_formats_are_sent_byte_for_byte_and_others_as_png(tmp_path: Path, kind: str):
    file = tmp_path / "x"
    Image.new("RGB", (4, 6), "red").save(file, kind)
    sent = encode_for_upload(file)
    assert sent.size == (4, 6)
    assert sent.mime == ("image/png" if kind == "BMP" else f"image/{kind.lower()}")
    assert sent.data.startswith(b"\x89PNG") if kind == "BMP" else sent.data == file.read_bytes()


def test_a_colour_profile_is_applied_before_sending(tmp_path: Path):
    plain = Image.new("RGB", (4, 6), (200, 120, 90))
    plain.save(tmp_path / "srgb.png", icc_profile=profiles.srgb())
    assert encode_for_upload(tmp_path / "srgb.png").data == (tmp_path / "srgb.png").read_bytes()
    plain.save(tmp_path / "wide.png", icc_profile=profiles.adobe_rgb())
    with Image.open(io.BytesIO(encode_for_upload(tmp_path / "wide.png").data)) as sent:
        assert "icc_profile" not in sent.info
        assert sent.getpixel((0, 0)) == images.read_picture(tmp_path / "wide.png").getpixel((0, 0)) != (200, 120, 90)


def test_what_is_no_picture_is_not_sent(tmp_path: Path):
    (tmp_path / "x.png").write_bytes(b"text")
    with pytest.raises(UnreadableImage, match=r"x\.png"):
        encode_for_upload(tmp_path / "x.png")


@pytest.mark.parametrize("odd", [None, "", 3, ["AAAA"], "AA=A", "ü"])
def test_what_is_no_base64_is_broken(odd: object):
    with pytest.raises(CallFailed, match="base64"):
        from_base64(odd)


def test_threads_that_call_at_the_same_moment_share_one_event_loop(monkeypatch: pytest.MonkeyPatch):
    made = asyncio.new_event_loop

    def slowly() -> asyncio.AbstractEventLoop:
        time.sleep(0.05)
        return made()

    async def loop() -> int:
        return id(asyncio.get_running_loop())

    client._loop.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(asyncio, "new_event_loop", slowly)
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: client.on_loop(loop()), range(8)))) == 1
