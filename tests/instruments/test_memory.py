"""What networks see is recalled, and what is shipped is what they see."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillme.api.demo import LONGEST, shrink_into
from stillme.core.images import read_rgb
from stillme.instruments import faces, identity
from stillme.instruments.faces import detection, landmarks, memory
from stillme.instruments.faces.memory import describe
from stillme.portraits import portraits


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """A few portraits as the demo has them."""
    folder = shrink_into(tmp_path_factory.mktemp("small"), portraits()[::40], longest=LONGEST)
    return [read_rgb(file) for file in sorted(Path(folder).glob("*.png"))]


def test_what_is_shipped_belongs_to_this_code_and_these_weights(tool: Callable[[str], Any]) -> None:
    with files("stillme.instruments.faces").joinpath(memory.EMBEDDED).open("rb") as stream:
        assert str(np.load(stream)["code"]) == tool("fingerprint").code_hash(), "run `python tools/models/embedded.py`"


def test_what_is_shipped_is_what_the_networks_see(pictures: list[np.ndarray]) -> None:
    before = len(memory.remembered())
    for rgb in pictures:
        (shipped,) = faces.find(rgb)
        (seen,) = detection.find(rgb)
        np.testing.assert_allclose(shipped.points, seen.points, atol=0.01)
        mesh, fitted = faces.mesh(rgb, shipped), landmarks.mesh(rgb, shipped)
        np.testing.assert_allclose(mesh.points, fitted.points, atol=0.05)
        assert mesh.presence == pytest.approx(fitted.presence, abs=1e-3)
        apart = identity.distance(describe(rgb, mesh).identity, identity.describe(rgb, mesh).identity)
        assert apart < 1e-4
    assert len(memory.remembered()) == before, "all of it was shipped: the demo computes none of it"


def test_other_pixels_are_looked_at_again_and_the_same_only_once(
    pictures: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(detection, "find", lambda rgb, **_: looked.append(int(rgb[0, 0, 0])) or [])
    for value in (1, 2, 1):
        rgb = pictures[0].copy()
        rgb[0, 0, 0] = value
        faces.find(rgb)
    assert looked == [1, 2]
