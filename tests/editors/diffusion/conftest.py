"""Tiny pipelines, built once a session, and requests to edit with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from stillme.core.types import Portrait, Prompt, Request, Spec
from tests.editors.diffusion import tiny
from tests.pictures import noise
from tests.records import portrait, prompt, request

MISSING = [name for name in ("torch", "diffusers", "transformers", "accelerate") if find_spec(name) is None]
SMALL = 64
"""Pixels a side: the least that Flux2 accepts."""

THIRD_PARTY = [
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]
"""Warnings inside torch and diffusers that are not ours to mend."""

Ask = Callable[..., Request]


@pytest.fixture(scope="session", autouse=True)
def _importable() -> None:
    """Before any test of this folder imports diffusers: a failed import of torchvision cannot be repeated."""
    if MISSING:
        return
    import torch

    torch.set_num_threads(1)  # 5-8 times faster for models this small
    tiny.allow_torchvision()
    import diffusers.utils.logging as diffusers_logging
    import transformers.utils.logging as transformers_logging

    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of weights are not remembered in the user's home."""
    monkeypatch.setenv("STILLME_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def installed() -> None:
    """Skips where the extra is not installed."""
    if MISSING:
        pytest.skip(f"{', '.join(MISSING)} not installed: `pip install 'stillme[diffusers]'` runs these tests")


@pytest.fixture(scope="session")
def folders(installed: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny pipelines by name, saved as folders."""
    root = tmp_path_factory.mktemp("pipelines")
    makers = (tiny.flux2, tiny.klein, tiny.qwen, tiny.longcat, tiny.pix2pix, tiny.kontext)
    return {make.__name__: make(root / make.__name__) for make in makers}


@pytest.fixture
def offline(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folders, no hub, and what Qwen and LongCat make a megapixel shrunk."""
    import huggingface_hub.constants
    from diffusers.pipelines.longcat_image import pipeline_longcat_image_edit as longcat
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as plus

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(plus, "VAE_IMAGE_SIZE", SMALL * SMALL)
    monkeypatch.setattr(plus, "CONDITION_IMAGE_SIZE", SMALL * SMALL)
    sized = longcat.calculate_dimensions
    monkeypatch.setattr(longcat, "calculate_dimensions", lambda _, ratio: sized(SMALL * SMALL, ratio))
    return folders


def picture(path: Path, *, seed: int = 0, width: int = SMALL, height: int = SMALL) -> Portrait:
    """A portrait that is noise."""
    return replace(portrait(path.stem), image=noise(path, width, height, seed=seed))


def asked(text: str = "Add a hat.", name: str = "O-01") -> Prompt:
    return replace(prompt(name), text=text)


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """A request for an edit of one or more noise pictures."""

    def make(text: str = "Add a hat.", *, seed: int = 0, people: tuple[int, ...] = (0,), side: int = SMALL) -> Request:
        portraits = tuple(picture(tmp_path / f"p{who}.png", seed=who, width=side, height=side) for who in people)
        tiny_one = request(seed=seed, editor=Spec(use="tiny", version="1", parameters={}))
        return replace(tiny_one, portraits=portraits, prompt=asked(text), instruction=text)

    return make
