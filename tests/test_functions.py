"""Functions of the user's own are found by name, checked before they are called, and named by their source."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stillme.core import functions
from stillme.core.errors import StillmeError
from stillme.core.functions import Function, FunctionParameters, name_of, source_hash


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules and paths of one test are not those of the next."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    functions._imported.clear()


def load(folder: Path, written: str, **settings: Any) -> Function:
    return Function.of(FunctionParameters(function=written, **settings).with_base(folder))


def write(folder: Path, name: str = "mine.py", text: str = "def edit(image):\n    return image\n") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


# -- finding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["mine:edit", "./mine.py:edit", "mine.py:edit"])
def test_a_function_is_found_in_the_folder_of_the_audit(tmp_path: Path, written: str):
    write(tmp_path)
    function = load(tmp_path, written)
    assert function({"image": 7}) == 7
    assert function.name == "mine:edit"


def test_a_function_is_found_among_the_installed_packages(tmp_path: Path):
    assert load(tmp_path, "textwrap:dedent").name == "textwrap:dedent"


def test_a_package_and_a_static_method_are_found(tmp_path: Path):
    write(tmp_path, "kit/__init__.py", "")
    write(tmp_path, "kit/editing.py", "class Tools:\n    @staticmethod\n    def edit(image): return -image\n")
    assert load(tmp_path, "kit.editing:Tools.edit")({"image": 7}) == -7


def test_a_module_imports_its_neighbours_also_while_it_is_called(tmp_path: Path):
    write(tmp_path, "near.py", "FACTOR = 3\n")
    write(tmp_path, "late.py", "FACTOR = 5\n")
    write(
        tmp_path, text="import near\ndef edit(image):\n    import late\n    return image * near.FACTOR * late.FACTOR\n"
    )
    assert load(tmp_path, "mine:edit")({"image": 1}) == 15
    assert load(tmp_path, "./mine.py:edit")({"image": 1}) == 15


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("mine", "'mine' names no function. Write `python:module:function`"),
        (":edit", "names no function"),
        ("nothing_like_it:edit", "There is no module 'nothing_like_it', neither in"),
        ("mien:edit", "Did you mean 'mine'?"),
        ("./mien.py:edit", "mien.py. Did you mean 'mine.py'?"),
        ("mine:edti", "'mine' has no function 'edti'. Did you mean 'edit'?"),
        ("mine:CONSTANT", "mine:CONSTANT is not a function, but dict"),
        ("needy:edit", "'needy' cannot be imported (ModuleNotFoundError: No module named 'surely_not_there')"),
        ("quitting:edit", "'quitting' cannot be imported (SystemExit: 1)"),
        ("json:edit", "another one has its name"),
    ],
)
def test_what_cannot_be_found_is_said_in_one_sentence(tmp_path: Path, written: str, words: str):
    write(tmp_path, text="CONSTANT = {}\ndef edit(image): ...\n")
    write(tmp_path, "needy.py", "import surely_not_there\n")
    write(tmp_path, "quitting.py", "import sys\nsys.exit(1)\n")
    write(tmp_path, "json.py", "def edit(image): ...\n")
    with pytest.raises(StillmeError) as caught:
        load(tmp_path, written)
    assert words in str(caught.value)


def test_a_file_may_be_called_like_an_installed_module(tmp_path: Path):
    import json

    write(tmp_path, "json.py")
    assert load(tmp_path, "./json.py:edit")({"image": 7}) == 7
    assert sys.modules["json"] is json


def test_modules_of_two_folders_and_their_neighbours_are_not_mixed_up(tmp_path: Path):
    for folder in "ab":
        write(tmp_path / folder, "near.py", f"def edit(image): return {folder!r}\n")
        write(tmp_path / folder, text="from near import edit\n")
        write(tmp_path / folder, "alone.py", f"def edit(image): return {folder!r}\n")
    for written in ("alone:edit", "./alone.py:edit", "./mine.py:edit"):
        results = [load(tmp_path / folder, written)({"image": 0}) for folder in "aba"]
        assert results == ["a", "b", "a"]


@pytest.mark.parametrize("written", ["mine:edit", "./mine.py:edit"])
def test_a_changed_file_is_imported_again_and_an_unchanged_one_is_not(tmp_path: Path, written: str):
    write(tmp_path, text="def edit(image): return 1\n")
    first = load(tmp_path, written)
    assert load(tmp_path, written).call is first.call
    write(tmp_path, text="def edit(image): return 2\n")
    second = load(tmp_path, written)
    assert (first({"image": 0}), second({"image": 0})) == (1, 2)
    assert first.version != second.version


# -- what a function asks for -----------------------------------------------------------------------------------------


def of(function: Callable[..., Any], **settings: Any) -> Function:
    parameters = FunctionParameters(function="x:y", **settings)
    return Function.of(parameters, function)


def test_a_function_gets_what_it_asks_for_by_name():
    supplied = {"image": "i", "instruction": "do", "seed": 3}
    assert of(lambda seed, image: (seed, image))(supplied) == (3, "i")
    assert of(lambda image, /, *, seed=0: (image, seed))(supplied) == ("i", 3)
    assert of(lambda image, unknown=9: (image, unknown))(supplied) == ("i", 9)
    assert of(lambda **everything: everything)(supplied) == supplied
    assert of(lambda image, strength: (image, strength), arguments={"strength": 0.5})(supplied) == ("i", 0.5)


async def later(image: object) -> object:
    return image


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (lambda img: img, {}, "'x:y' needs 'img', which is not supplied; rename it to one of image, seed, or set"),
        (lambda image, strength: image, {}, "set `arguments.strength`"),
        (lambda image: image, {"strength": 1}, "`arguments.strength` is no parameter of 'x:y'; it has image"),
        (lambda image: image, {"image": 1}, "`arguments.image` is not yours to set"),
        (later, {}, "is async"),
        (dict.pop, {}, "does not tell its parameters"),
    ],
    ids=["unknown", "no argument", "unknown argument", "supplied", "async", "no signature"],
)
def test_what_cannot_be_called_is_said_beforehand(function: Any, arguments: dict[str, Any], words: str):
    (sentence,) = of(function, arguments=arguments, version="1").problems(("image", "seed"))
    assert words in sentence


def test_a_function_that_can_be_called_has_no_problems():
    supplied = ("image", "seed")
    assert list(of(lambda image, extra=1, *more, **others: image).problems(supplied)) == []
    assert list(of(lambda: None).problems(supplied)) == []
    assert list(of(lambda **others: others, arguments={"strength": 1}).problems(supplied)) == []


# -- what keys the results --------------------------------------------------------------------------------------------


def key(folder: Path, written: str = "mine:edit", **settings: Any) -> str:
    parameters = FunctionParameters(function=written, **settings).with_base(folder)
    return Function.of(parameters).spec(parameters).key


def test_source_and_arguments_key_the_results_and_the_place_of_the_file_does_not(tmp_path: Path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    write(tmp_path / "c", text="def edit(image):\n    return None\n")
    plain = key(tmp_path / "a")
    assert plain == key(tmp_path / "b") == key(tmp_path / "b", "./mine.py:edit") == key(tmp_path, "b/mine.py:edit")
    assert plain == key(tmp_path / "a", concurrency=4)
    assert (
        len({plain, key(tmp_path / "c"), key(tmp_path / "a", arguments={"x": 1}), key(tmp_path / "a", version="2")})
        == 4
    )


def test_a_version_of_ones_own_replaces_the_hash_of_the_source(tmp_path: Path):
    write(tmp_path)
    before = key(tmp_path, version="1")
    write(tmp_path, text="# a comment\ndef edit(image):\n    return image\n")
    assert key(tmp_path, version="1") == before


def test_a_re_exported_function_is_keyed_by_the_file_that_defines_it(tmp_path: Path):
    write(tmp_path, "kit/__init__.py", "from kit.editing import edit\n")
    write(tmp_path, "kit/editing.py")
    before = key(tmp_path, "kit:edit")
    write(tmp_path, "kit/editing.py", "def edit(image):\n    return None\n")
    assert key(tmp_path, "kit:edit") != before


def scaled(factor: float) -> Callable[[float], float]:
    return lambda image: image * factor


def test_values_bound_to_a_function_key_its_results():
    assert source_hash(scaled(2)) == source_hash(scaled(2)) != source_hash(scaled(3))
    halves = [functools.partial(pow, 2), functools.partial(pow, 2), functools.partial(pow, 3)]
    with pytest.raises(StillmeError, match="set `version`"):
        source_hash(halves[0])
    twice = [functools.partial(scaled, 2), functools.partial(scaled, factor=2)]
    assert source_hash(twice[0]) != source_hash(twice[1])


def test_a_function_without_a_file_is_keyed_by_its_code():
    spaces: list[dict[str, Any]] = [{}, {}, {}]
    for space, text in zip(spaces, ["image", "image", "-image"], strict=True):
        exec(f"def edit(image): return {text}", space)
    one, same, other = (source_hash(space["edit"]) for space in spaces)
    assert one == same != other


class Halver:
    def __call__(self, image: float) -> float:
        return image / 2


def test_an_object_that_can_be_called_is_named_and_keyed_by_its_class():
    assert name_of(Halver()) == f"{__name__}:Halver"
    assert source_hash(Halver()) == source_hash(Halver())
    assert of(Halver())({"image": 4}) == 2
