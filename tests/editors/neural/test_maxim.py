"""Graph models of TensorFlow.js, and the editor that is one."""

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stillme.editors.neural import maxim
from stillme.editors.neural.downloads import Archive
from stillme.editors.neural.from_tfjs import convert
from stillme.editors.neural.graph import Network
from stillme.errors import StillmeError
from stillme.files import sha256_of
from stillme.images import read_rgb
from stillme.types import Arm, Edited, Failed, ImageFile, Portrait, Prompt, Request

SIDE = 64


def text(value: str) -> dict[str, str]:
    return {"s": base64.b64encode(value.encode()).decode()}


def node(name: str, operator: str, *inputs: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "op": operator, "input": list(inputs), "attr": attributes}


def graph() -> tuple[dict[str, Any], bytes]:
    """Swaps red and blue by a convolution, then halves the contrast by arithmetic on a shape that it computes."""
    swap = np.eye(3, dtype="<f4")[::-1].reshape(1, 1, 3, 3)
    arrays = {
        "kernel": swap,
        "zero": np.array([0], "<i4"),
        "one": np.array([1], "<i4"),
        "half": np.array(0.25, "<f4"),
        "mix": np.eye(3, dtype="<f4"),
        "three": np.array(3, "<i4"),
        "minus": np.array(-1, "<i4"),
    }
    masks = {f"{name}_mask": {"i": "0"} for name in ("begin", "end", "ellipsis", "new_axis")}
    nodes = [
        node("picture", "Placeholder"),
        *(node(name, "Const") for name in arrays),
        node("swapped", "Conv2D", "picture", "kernel", strides={"list": {"i": ["1"] * 4}}, padding=text("SAME")),
        node("shape", "Shape", "picture"),
        node("batch", "StridedSlice", "shape", "zero", "one", "one", **masks, shrink_axis_mask={"i": "1"}),
        node("flat_shape", "Pack", "batch", "minus", "three"),
        node("flat", "Reshape", "swapped", "flat_shape"),
        node("back", "Reshape", "flat", "shape"),
        node("mixed", "Einsum", "back", "mix", equation=text("abcg,gf->abcf")),
        node("square", "Square", "half"),
        node("rsqrt", "Rsqrt", "square"),
        node("divided", "RealDiv", "mixed", "rsqrt"),
        node("doubled", "AddV2", "divided", "divided"),
        node("result", "Identity", "doubled"),
    ]
    entries = [
        {"name": name, "shape": list(array.shape), "dtype": "int32" if array.dtype.kind == "i" else "float32"}
        for name, array in arrays.items()
    ]
    model = {"modelTopology": {"node": nodes}, "weightsManifest": [{"paths": ["group1.bin"], "weights": entries}]}
    return model, b"".join(array.tobytes() for array in arrays.values())


def test_a_graph_model_computes_what_its_nodes_say() -> None:
    model, weights = graph()
    picture = np.random.default_rng(0).random((1, SIDE, SIDE, 3), dtype=np.float32)
    (made,) = Network(convert(model, weights, SIDE, "tiny")).run(picture=picture)
    assert np.allclose(made, picture[..., ::-1] / 2, atol=1e-6)


def test_an_operator_that_is_not_known_is_named() -> None:
    model, weights = graph()
    model["modelTopology"]["node"].append(node("last", "FractionalMaxPool", "result"))
    with pytest.raises(StillmeError, match="tiny uses FractionalMaxPool"):
        convert(model, weights, SIDE, "tiny")


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> maxim.Maxim:
    """The editor with a network of two lines in the place of MAXIM, already in the cache."""
    monkeypatch.setenv("STILLME_CACHE", str(tmp_path / "cache"))
    packed = tmp_path / "tiny.tgz"
    model, weights = graph()
    with tarfile.open(packed, "w:gz") as archive:
        parts = {"model.json": json.dumps(model).encode(), "group1.bin": weights}
        for name, data in parts.items():
            entry = tarfile.TarInfo(f"package/models/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    known = Archive(url="http://127.0.0.1:9/tiny.tgz", sha256=sha256_of(packed), megabytes=1)
    known.folder.mkdir(parents=True)
    packed.replace(known.folder / known.file)
    monkeypatch.setitem(maxim.PACKAGES, "retouching", known)
    return maxim.Maxim(maxim.MaximParameters(side=SIDE))


def outcome_of(editor: maxim.Maxim, path: Path) -> object:
    portrait = Portrait(id="p", image=ImageFile.of(path), attributes={}, label_origin="none", licence="CC0-1.0")
    prompt = Prompt(id="retouching", text="Retouch.", category="style", subcategory="")
    request = Request(
        portraits=(portrait,), prompt=prompt, arm=Arm.BASELINE, instruction="", editor=editor.spec, seed=1
    )
    return next(iter(editor.edit([request])))


def test_a_picture_of_any_shape_comes_back_in_its_own(editor: maxim.Maxim, tmp_path: Path) -> None:
    tall = np.zeros((200, 100, 3), dtype=np.uint8)
    tall[..., 0] = 200
    Image.fromarray(tall).save(tmp_path / "tall.png")
    outcome = outcome_of(editor, tmp_path / "tall.png")
    assert isinstance(outcome, Edited)
    made = read_rgb(outcome.image)
    assert made.shape == (64, 32, 3)
    assert (np.abs(made.astype(int) - [0, 0, 100]) <= 1).all()


def test_what_is_no_picture_fails_with_its_name(editor: maxim.Maxim, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    outcome = outcome_of(editor, tmp_path / "text.png")
    assert isinstance(outcome, Failed)
    assert not outcome.fatal


def test_it_takes_only_its_own_prompt(editor: maxim.Maxim) -> None:
    assert editor.capabilities.prompts == ("retouching",)
    assert any("reads no instruction" in problem for problem in editor.problems((), ()))
