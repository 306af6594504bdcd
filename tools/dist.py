"""Build the wheel and the sdist, and prove that they install: `make dist`, or python tools/dist.py [STEP ...].

    build     wheel and sdist into dist/, with their contents checked and their size reported
    extras    all extras resolve together, on every Python that is supported
    install   a clean environment on every Python that is here; `stillme demo` from an empty folder
    lowest    the same with the lowest versions that pyproject.toml allows
    uvx       `uvx --from WHEEL stillme --version`
    sbom      what an installation holds: CycloneDX, and a list of licences

Every step stops at the first thing that is wrong. All results lie in dist/.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LARGEST = 35_000_000
"""Bytes of a wheel; PyPI takes 100 MB."""
NEEDED = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "Makefile", "src", "tests", "docs")
COPYLEFT = re.compile(r"\b(A?GPL|GNU (Affero )?General Public)", re.IGNORECASE)


def main() -> None:
    for name in sys.argv[1:] or STEPS:
        if name not in STEPS:
            stop(f"there is no step {name!r}; there are {', '.join(STEPS)}")
        print(f"-- {name}", flush=True)
        STEPS[name]()


def build() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "hatchling", "build", "--directory", str(DIST))
    check_wheel(wheel())
    (sdist,) = DIST.glob("*.tar.gz")
    check_sdist(sdist)


def check_wheel(file: Path) -> None:
    """Exactly the package: every file of src/stillme, and nothing else."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry.file_size for entry in archive.infolist()}
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "stillme").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in entries if ".dist-info/" not in name}
    if missing := sorted(package - inside):
        stop(f"{file.name} lacks {missing[0]} and {len(missing) - 1} more files of the package")
    if strange := sorted(inside - package):
        stop(f"{file.name} holds {strange[0]}, which is no file of the package")
    rooms: Counter[str] = Counter()
    for name, size in entries.items():
        rooms["/".join(name.split("/")[:2]) if name.count("/") > 1 else name.split("/")[0]] += size
    report_size(file, len(entries))
    for room, size in rooms.most_common(5):
        print(f"   {size / 1e6:7.2f} MB  {room}")


def check_sdist(file: Path) -> None:
    """What is needed to build and test; no environment, no run, no result."""
    with tarfile.open(file) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    tops = {name.partition("/")[0] for name in names}
    if missing := [name for name in NEEDED if name not in tops]:
        stop(f"{file.name} lacks {missing[0]}")
    if strange := [
        name for name in names if re.search(r"(^|/)(\.venv|__pycache__|stillme-demo)/|^runs/|\.sqlite$", name)
    ]:
        stop(f"{file.name} holds {strange[0]}, which belongs to this machine")
    report_size(file, len(names))


def report_size(file: Path, entries: int) -> None:
    size = file.stat().st_size
    print(f"   {size / 1e6:7.2f} MB  {file.name}, {entries:,} files")
    if size > LARGEST:
        stop(f"{file.name} is larger than {LARGEST / 1e6:.0f} MB; what has grown?")


def extras() -> None:
    for python in PYTHONS:
        call(
            *UV_COMPILE, "--all-extras", "--python-version", python, "--output-file", f"{DIST}/all-extras-{python}.txt"
        )
        pins = [line for line in (DIST / f"all-extras-{python}.txt").read_text().splitlines() if "==" in line]
        print(f"   {len(pins)} packages on Python {python}")


def install() -> None:
    here = [python for python in PYTHONS if interpreter(python)]
    if not here:
        stop(f"none of Python {', '.join(PYTHONS)} is installed")
    for python in here:
        with clean_environment(interpreter(python)) as folder:
            call(*UV_INSTALL, "--python", python_of(folder), str(wheel()))
            try_demo(folder, f"Python {python}")
    if absent := [python for python in PYTHONS if python not in here]:
        print(f"   not here, so not tried: Python {', '.join(absent)}")


def lowest() -> None:
    """On the oldest Python: later ones have no wheels of the oldest libraries."""
    oldest = PYTHONS[0]
    pins = DIST / "lowest.txt"
    call(*UV_COMPILE, "--resolution", "lowest-direct", "--python-version", oldest, "--output-file", str(pins))
    with clean_environment(interpreter(oldest)) as folder:
        call(*UV_INSTALL, "--python", python_of(folder), "--requirements", str(pins))
        call(*UV_INSTALL, "--python", python_of(folder), "--no-deps", str(wheel()))
        try_demo(folder, f"lowest versions on Python {oldest}")


def uvx() -> None:
    with tempfile.TemporaryDirectory() as empty:
        shown = call(uv(), "tool", "run", "--isolated", "--from", str(wheel()), "stillme", "--version", cwd=Path(empty))
    print(f"   {shown.strip()}")


def sbom() -> None:
    version = wheel().name.split("-")[1]
    with clean_environment(sys.executable) as folder:
        call(*UV_INSTALL, "--python", python_of(folder), str(wheel()))
        file = DIST / f"stillme-{version}.cdx.json"
        tool = str(BIN / "cyclonedx-py")
        call(tool, "environment", python_of(folder), "--output-reproducible", "--of", "JSON", "-o", str(file))
        (site,) = folder.glob("lib/python*/site-packages")
        licences = sorted(licence_of(found) for found in importlib.metadata.distributions(path=[str(site)]))
    components = {component["name"] for component in json.loads(file.read_text())["components"]}
    if lacking := [name for name, _, _ in licences if name not in components and name != "stillme"]:
        stop(f"{file.name} lacks {lacking[0]}")
    lines = ["| package | version | licence |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in licences)]
    (DIST / "licences.md").write_text("\n".join(lines) + "\n")
    for name, _, licence in licences:
        if COPYLEFT.search(licence) and "LGPL" not in licence:
            stop(f"{name} is under {licence}; what stillme installs must be permissive")
        if not licence:
            stop(f"{name} states no licence; look at it and record what it is")
    print(f"   {len(components)} components in {file.name}, {len(licences)} licences in licences.md")


def licence_of(found: importlib.metadata.Distribution) -> tuple[str, str, str]:
    about = found.metadata
    classified = [
        value.rpartition(" :: ")[2] for value in about.get_all("Classifier") or () if value.startswith("License ::")
    ]
    first_line = (about.get("License") or "").strip().partition("\n")[0]
    return about["Name"], about["Version"], about.get("License-Expression") or ", ".join(classified) or first_line


# -- how -----------------------------------------------------------------------------------------------------------


class clean_environment:  # noqa: N801
    """A virtual environment with nothing in it, removed afterwards."""

    def __init__(self, python: str) -> None:
        self._python = python

    def __enter__(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix="stillme-dist-"))
        call(uv(), "venv", "--quiet", "--clear", "--python", self._python, str(self._folder))
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def try_demo(environment: Path, what: str) -> None:
    with tempfile.TemporaryDirectory(prefix="stillme-empty-") as empty:
        call(str(environment / "bin" / "stillme"), "demo", "--out", "demo", cwd=Path(empty))
        report = Path(empty, "demo", "report.html")
        if not report.is_file():
            stop(f"{what}: `stillme demo` wrote no report")
    call(uv(), "pip", "check", "--quiet", "--python", python_of(environment))
    print(f"   {what}: installed and ran the demo")


def interpreter(version: str) -> str:
    """The path of a Python that works: pyenv's shims stand also for what is not chosen."""
    candidates = [shutil.which(f"python{version}") or ""]
    candidates += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for path in filter(None, candidates):
        tried = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if tried.returncode == 0:
            return path
    return ""


def python_of(environment: Path) -> str:
    return str(environment / "bin" / "python")


def wheel() -> Path:
    found = sorted(DIST.glob("*.whl"))
    if len(found) != 1:
        stop("there is no wheel in dist/; run the step `build` first")
    return found[0]


def uv() -> str:
    return str(BIN / "uv")


def call(*command: str, cwd: Path = ROOT) -> str:
    # Neither this checkout nor the plugins of its tests may help the package along.
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    shown = subprocess.run(command, cwd=cwd, env=plain, capture_output=True, text=True, check=False)
    if shown.returncode:
        stop(f"`{' '.join(command)}` failed:\n{(shown.stderr or shown.stdout)[-3000:]}")
    return shown.stdout


def stop(why: str) -> None:
    sys.exit(f"dist: {why}")


UV_COMPILE = (uv(), "pip", "compile", "--quiet", "--no-header", str(ROOT / "pyproject.toml"))
UV_INSTALL = (uv(), "pip", "install", "--quiet")
STEPS: dict[str, Callable[[], None]] = {
    "build": build,
    "extras": extras,
    "install": install,
    "lowest": lowest,
    "uvx": uvx,
    "sbom": sbom,
}

if __name__ == "__main__":
    main()
