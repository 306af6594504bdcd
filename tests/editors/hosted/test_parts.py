"""Limits, prices, waiting times, pictures: the parts that every adapter is made of."""

from __future__ import annotations

import threading
from datetime import date
from pathlib import Path

import pytest
from PIL import Image

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Price, Usage, dollars
from stillme.editors.hosted.faults import Broken, dig, of_status, retry_after
from stillme.editors.hosted.limits import RateLimiter
from stillme.editors.hosted.pictures import from_base64, outgoing
from stillme.errors import UnreadableImage


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.now += seconds

    def limiter(self, per_minute: float | None) -> RateLimiter:
        return RateLimiter(per_minute, now=lambda: self.now, sleep=self.sleep)


def test_no_minute_holds_more_than_its_share():
    clock = Clock()
    limiter = clock.limiter(30)
    moments = []
    for _ in range(120):
        limiter.wait()
        moments.append(clock.now)
    assert all(later - earlier >= 60 - 1e-6 for earlier, later in zip(moments, moments[30:], strict=False))


def test_without_a_limit_nobody_waits():
    clock = Clock()
    limiter = clock.limiter(None)
    for _ in range(1000):
        limiter.wait()
    assert clock.now == 100.0


def test_a_hold_holds_everybody_and_a_shorter_one_does_not_end_it():
    clock = Clock()
    limiter = clock.limiter(6000)
    limiter.hold(30)
    limiter.hold(5)
    limiter.wait()
    assert clock.now >= 130


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    limiter = clock.limiter(60)
    limiter.wait()
    clock.sleep(600)
    limiter.wait()
    limiter.wait()
    assert clock.now == pytest.approx(701)


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


@pytest.mark.parametrize(
    ("status", "retryable", "account"),
    [
        *((status, False, False) for status in (400, 404, 413, 422)),
        *((status, True, True) for status in (401, 402, 403)),
        *((status, True, False) for status in (408, 429, 500, 529)),
    ],
)
def test_a_status_says_whether_to_try_again(status: int, retryable: bool, account: bool):
    broken = of_status(status, "words", {})
    assert (broken.failed.retryable, broken.account) == (retryable, account)
    assert broken.failed.error == f"{status}: words"


def test_a_page_of_words_is_cut_short():
    assert len(of_status(500, "<p>long</p>\n" * 1000, {}).failed.error) < 700


def test_digging_in_anything_finds_nothing_rather_than_raising():
    assert dig({"a": [{"b": 1}]}, "a", 0, "b") == 1
    for odd in (None, 3, "text", [], {"a": None}, {"a": "b"}):
        assert dig(odd, "a", 0, "b") is None


def test_a_cost_is_the_sum_of_what_is_charged_for():
    price = Price(input_text=1, output_image=10, image=0.5, second=0.01)
    usage = Usage(input_text=1_000_000, output_image=100_000, images=1, seconds=3)
    assert dollars(price, usage) == pytest.approx(1 + 1 + 0.5 + 0.03)


def test_a_cost_that_nobody_can_tell_is_not_zero():
    assert dollars(None, Usage(images=1)) is None
    assert dollars(Price(output_image=30), Usage(images=1)) is None, "charged by tokens, and none were told"


def test_nothing_is_charged_by_area_for_a_picture_that_was_not_made():
    assert dollars(Price(first_megapixel=1, further_megapixel=1), Usage(sizes=[(512, 512)])) == 0.0


def test_the_catalogue_is_whole_and_dated():
    assert catalogue.read_on() >= date(2026, 11, 15)
    for name in ("openai", "gemini", "fal", "replicate", "huggingface"):
        found = catalogue.service(name)
        assert found.default
        assert found.base_url.startswith("https://")
        assert found.facts("a model of tomorrow").inputs == found.inputs
    assert catalogue.service("fal").facts("fal-ai/flux-2-pro/edit").images == "image_urls[]"


@pytest.mark.parametrize(("kind", "mime"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
def test_common_formats_are_sent_byte_for_byte(tmp_path: Path, kind: str, mime: str):
    file = tmp_path / "x"
    Image.new("RGB", (4, 6), "red").save(file, kind)
    sent = outgoing(file)
    assert (sent.data, sent.mime, sent.size) == (file.read_bytes(), mime, (4, 6))


def test_other_formats_are_sent_as_png(tmp_path: Path):
    Image.new("RGB", (4, 6), "red").save(tmp_path / "x.bmp")
    assert outgoing(tmp_path / "x.bmp").data.startswith(b"\x89PNG")


def test_what_is_no_picture_is_not_sent(tmp_path: Path):
    (tmp_path / "x.png").write_bytes(b"text")
    with pytest.raises(UnreadableImage, match=r"x\.png"):
        outgoing(tmp_path / "x.png")


@pytest.mark.parametrize("odd", [None, "", 3, ["AAAA"], "AA=A", "ü"])
def test_what_is_no_base64_is_broken(odd: object):
    with pytest.raises(Broken, match="base64"):
        from_base64(odd)
