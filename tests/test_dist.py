"""What is built is the package and no more; `make dist` installs it."""

from __future__ import annotations

import importlib.util
import io
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from stillme import __version__

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dist_tool", ROOT / "tools" / "dist.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(file: Path, *, without: str = "", with_: str = "") -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for path in (ROOT / "src" / "stillme").rglob("*"):
            name = path.relative_to(ROOT / "src").as_posix()
            if path.is_file() and "__pycache__" not in path.parts and name != without:
                archive.writestr(name, b"")
        if with_:
            archive.writestr(with_, b"")
    return file


def test_a_whole_wheel_passes(dist: ModuleType, tmp_path: Path):
    dist.check_wheel(wheel(tmp_path / "a.whl", with_="stillme-0.dist-info/METADATA"))


@pytest.mark.parametrize(
    ("without", "with_", "said"),
    [
        ("stillme/core/rubric/rubric.toml", "", "lacks stillme/core/rubric/rubric.toml"),
        ("", "tests/runs.py", "holds tests/runs.py"),
    ],
)
def test_a_wheel_that_lacks_or_adds_a_file_is_stopped(
    dist: ModuleType, tmp_path: Path, without: str, with_: str, said: str
):
    with pytest.raises(SystemExit, match=said):
        dist.check_wheel(wheel(tmp_path / "a.whl", without=without, with_=with_))


@pytest.mark.parametrize(("extra", "said"), [("runs/a/stillme.sqlite", "belongs to this machine"), ("", "lacks docs")])
def test_an_sdist_with_a_run_or_without_docs_is_stopped(dist: ModuleType, tmp_path: Path, extra: str, said: str):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in [
            *(f"x-0/{name}" for name in dist.NEEDED if extra or name != "docs"),
            *([f"x-0/{extra}"] if extra else []),
        ]:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(SystemExit, match=said):
        dist.check_sdist(tmp_path / "a.tar.gz")


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == __version__ == citation["version"]


def test_the_steps_are_those_of_the_releasing_page(dist: ModuleType):
    page = (ROOT / "docs" / "releasing.md").read_text()
    for step in dist.STEPS:
        assert f"| `{step}` |" in page
        assert f"    {step} " in (dist.__doc__ or "")
