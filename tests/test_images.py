"""Pictures from anywhere become upright 8-bit sRGB, whatever colour space their file names."""

from __future__ import annotations

import io
import struct
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFile

from stillme.core import colour, images
from stillme.core.errors import UnreadableImage
from stillme.core.images.coding import conversion_of
from stillme.portraits import portraits
from tests import profiles
from tests.pictures import encoded as saved

SKIN = np.array([[[224, 172, 140], [141, 85, 36], [255, 219, 172], [90, 56, 37]]], dtype=np.uint8).repeat(8, axis=0)


def in_adobe_rgb(srgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same colours in Adobe RGB's numbers, by its published matrix rather than LittleCMS."""
    to_adobe = np.linalg.inv(np.array(list(profiles.ADOBE_COLORANTS.values())).T)
    # sRGB's primaries for the white D50, as its profiles hold them.
    from_srgb = np.array([[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]])
    linear = np.clip(colour.to_linear(srgb) @ (to_adobe @ from_srgb).T, 0, 1)
    return np.round(255 * linear ** (256 / 563)).astype(np.uint8)


def png_with(pixels: NDArray[np.uint8], **chunks: bytes) -> bytes:
    plain = saved(pixels)
    added = b"".join(
        struct.pack(">I", len(body)) + name.encode() + body + struct.pack(">I", zlib.crc32(name.encode() + body))
        for name, body in chunks.items()
    )
    return plain[:33] + added + plain[33:]


def difference(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> float:
    return float(colour.delta_e(colour.to_lab(first), colour.to_lab(second)).mean())


ADOBE = in_adobe_rgb(SKIN)
GAMMA = struct.pack(">I", 45455)
ADOBE_CHRM = struct.pack(">8I", *(round(value * 1e5) for value in profiles.ADOBE_CHROMATICITY))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_an_adobe_rgb_source_has_the_colours_of_its_srgb_edit(kind: str):
    lossless = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(kind, {})
    wide = np.kron(ADOBE, np.ones((8, 8, 1), dtype=np.uint8))
    source = saved(wide, kind, icc_profile=profiles.adobe_rgb(), **lossless)
    assert difference(ADOBE, SKIN) > 2
    assert difference(images.read_rgb(source)[4::8, 4::8], SKIN) < 0.5


def test_a_portrait_in_adobe_rgb_is_the_same_portrait():
    portrait = images.read_rgb(portraits()[0].image.path)
    source = saved(in_adobe_rgb(portrait), icc_profile=profiles.adobe_rgb())
    assert difference(images.read_rgb(source), portrait) < 0.5


def test_gamma_and_primaries_of_a_png_are_read_as_its_profile_would_be():
    chunks = images.read_rgb(png_with(ADOBE, gAMA=GAMMA, cHRM=ADOBE_CHRM))
    assert difference(chunks, SKIN) < 0.5
    linear = images.read_rgb(png_with(np.full((2, 2, 3), 55, np.uint8), gAMA=struct.pack(">I", 100_000)))
    assert linear[0, 0] == pytest.approx((128, 128, 128), abs=1)


@pytest.mark.parametrize(
    "data",
    [
        saved(SKIN),
        saved(SKIN, icc_profile=profiles.srgb()),
        png_with(SKIN, sRGB=b"\0"),
        png_with(SKIN, gAMA=GAMMA),
        png_with(SKIN, sRGB=b"\0", gAMA=struct.pack(">I", 100_000)),
    ],
    ids=["untagged", "profile", "sRGB", "gAMA", "sRGB before gAMA"],
)
def test_srgb_stays_as_it_is(data: bytes):
    assert np.array_equal(images.read_rgb(data), SKIN)
    with Image.open(io.BytesIO(data)) as picture:
        assert conversion_of(picture).is_identity


def test_a_profile_is_known_by_its_colours_not_by_its_name():
    named_srgb = profiles.srgb().replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")
    pixels = np.full((4, 4, 3), (200, 120, 90), dtype=np.uint8)
    assert images.read_rgb(saved(pixels, icc_profile=named_srgb))[0, 0] == pytest.approx((120, 200, 90), abs=2)


def test_a_grey_profile_is_applied():
    level = np.full((4, 4), 55, dtype=np.uint8)
    assert images.read_rgb(saved(level, icc_profile=profiles.grey(1.0)))[0, 0] == pytest.approx((128,) * 3, abs=1)
    assert images.read_rgb(saved(level, icc_profile=profiles.srgb()))[0, 0].tolist() == [55] * 3


def test_sixteen_bits_of_grey_are_scaled_and_converted():
    level = np.full((4, 4), 55 * 257, dtype=np.uint16)
    assert images.read_rgb(saved(level))[0, 0].tolist() == [55] * 3
    assert images.read_rgb(saved(level, icc_profile=profiles.grey(1.0)))[0, 0] == pytest.approx((128,) * 3, abs=1)


def test_a_printers_profile_decides_the_colour_of_ink():
    magenta = Image.new("CMYK", (4, 4), (0, 255, 0, 0))
    data = saved(magenta, "TIFF", icc_profile=profiles.cmyk())
    lab = colour.to_lab(images.read_rgb(data))[0, 0]
    # The profile's corner for full magenta: L* 195/255, a* +30, b* -30; black-point compensation moves it a little.
    assert lab == pytest.approx((76.5, 30, -30), abs=3)
    assert images.colour_problem(data) == ""


def test_transparency_survives_the_conversion():
    layer = np.dstack([ADOBE, np.full(ADOBE.shape[:2], 255, np.uint8)])
    layer[0, :, 3] = 0
    rgb = images.read_rgb(saved(layer, icc_profile=profiles.adobe_rgb()))
    assert (rgb[0] == 255).all()
    assert difference(rgb[1:], SKIN[1:]) < 0.5


def test_a_converted_picture_is_not_converted_again_when_it_is_saved():
    picture = images.read_picture(saved(ADOBE, icc_profile=profiles.adobe_rgb()))
    assert np.array_equal(images.read_rgb(saved(picture)), np.asarray(picture))


BOMB = b"bomb\0\0" + zlib.compress(bytes(200 * 2**20), 9)
PADDED = profiles.adobe_rgb() + bytes(10 * 2**20)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (saved(SKIN, icc_profile=b"nothing"), "cannot be read"),
        (saved(SKIN, icc_profile=profiles.adobe_rgb()[:200]), "cannot be read"),
        (saved(SKIN, icc_profile=profiles.srgb()[:130]), "cannot be read"),
        (png_with(SKIN, iCCP=b"x\0\0not deflated"), "cannot be read"),
        (saved(SKIN, icc_profile=profiles.cmyk()), "for CMYK pictures, but it is RGB"),
        (saved(SKIN, icc_profile=profiles.grey(2.2)), "for GRAY pictures, but it is RGB"),
        (saved(SKIN, "TIFF", icc_profile=PADDED), "has 10 MB"),
        (png_with(SKIN, gAMA=bytes(4)), "describes no colours"),
        (png_with(SKIN, gAMA=GAMMA, cHRM=bytes(32)), "describes no colours"),
    ],
    ids=["text", "half", "header", "not packed", "CMYK", "grey", "10 MB", "no gamma", "no primaries"],
)
def test_a_profile_that_cannot_be_applied_is_named_and_the_picture_taken_for_srgb(data: bytes, problem: str):
    assert problem in images.colour_problem(data)
    assert np.array_equal(images.read_rgb(data), SKIN)


@pytest.mark.parametrize("body", [BOMB, b"big\0\0" + zlib.compress(PADDED)], ids=["bomb", "10 MB"])
def test_a_png_whose_profile_unpacks_without_end_is_refused_at_once(body: bytes):
    data, started = png_with(SKIN, iCCP=body), time.perf_counter()
    with pytest.raises(UnreadableImage, match="too large"):
        images.read_rgb(data)
    assert time.perf_counter() - started < 2


def test_no_damage_to_a_profile_stops_a_picture():
    rng = np.random.default_rng(0)
    for whole in (profiles.adobe_rgb(), profiles.cmyk(), profiles.srgb()):
        for _ in range(150):
            hurt = bytearray(whole)
            for place in rng.integers(0, len(hurt), 6):
                hurt[place] = rng.integers(0, 256)
            shape = images.read_rgb(saved(SKIN, icc_profile=bytes(hurt[: rng.integers(1, len(hurt) + 1)]))).shape
            assert shape == SKIN.shape


def test_threads_share_a_transform():
    sources = [saved(np.roll(ADOBE, shift, axis=1), icc_profile=profiles.adobe_rgb()) for shift in range(4)] * 20
    alone = [images.read_rgb(source) for source in sources]
    with ThreadPoolExecutor(8) as pool:
        assert all(map(np.array_equal, alone, pool.map(images.read_rgb, sources)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (9, 1), (33, 21)])
def test_a_picture_that_we_write_is_read_exactly_by_others(shape: tuple[int, int]):
    rgb = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(images.encode_png(rgb))) as picture:
        picture.verify()
    with Image.open(io.BytesIO(images.encode_png(rgb[:, ::-1]))) as picture:
        assert picture.mode == "RGB"
        assert np.array_equal(np.asarray(picture), rgb[:, ::-1])


def test_a_picture_that_was_just_written_is_read_as_it_was_then():
    rgb = np.zeros((4, 4, 3), dtype=np.uint8)
    data = images.encode_png(rgb)
    rgb[:] = 9
    assert images.read_rgb(data).max() == 0
    assert not images.read_rgb(data).flags.writeable
    assert np.array_equal(images.read_rgb(bytes(bytearray(data))), images.read_rgb(data))


HEIC = b"\0\0\0\x18ftypheic" + bytes(12)


def test_a_heic_picture_names_the_package_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "camera.heic").write_bytes(HEIC)
    for source in (HEIC, tmp_path / "camera.heic"):
        with pytest.raises(UnreadableImage, match="is a HEIC picture; `pip install pillow-heif` to read it"):
            images.read_rgb(source)


def test_what_a_reader_says_of_a_damaged_picture_stays_on_one_line(monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> None:
        raise ValueError("Unexpected end of file:\n  Extent outside of file bounds\n")

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(
        UnreadableImage, match=r"truncated \(Unexpected end of file: Extent outside of file bounds\)\.$"
    ):
        images.read_rgb(b"anything")


def test_an_installed_reader_of_heic_is_used(monkeypatch: pytest.MonkeyPatch):
    class Camera(ImageFile.ImageFile):
        """Stands for the real codec: every file is one grey picture."""

        format = "HEIF"

        def _open(self) -> None:
            self._mode, self._size, self.tile = "RGB", (4, 3), []
            self.im = Image.new("RGB", (4, 3), (9, 9, 9)).im

    def register() -> None:
        monkeypatch.setitem(Image.OPEN, "HEIF", (Camera, lambda head: head[4:12] == b"ftypheic"))
        monkeypatch.setattr(Image, "ID", ["HEIF", *Image.ID])

    monkeypatch.setitem(sys.modules, "pillow_heif", SimpleNamespace(register_heif_opener=register))
    assert images.read_rgb(HEIC).tolist() == np.full((3, 4, 3), 9).tolist()
