"""Small audits that any test can run."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.editors.hosted.loopback import Asked, Loopback, Says, serving

if TYPE_CHECKING:  # moto takes longer to import than most tests
    from tests.buckets import S3, Bucket

PLUGINS = Path(sys.prefix) / "test-plugins"
"""Where make installs tests/plugin_package: on the path of the tests and their subprocesses, and of nobody else."""

if not PLUGINS.is_dir():
    raise pytest.UsageError(f"{PLUGINS} is missing; run `make .venv/.test-plugins`.")
sys.path.append(str(PLUGINS))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(PLUGINS))))

# What this user keeps between runs neither changes the tests nor is changed by them.
os.environ["STILLME_HOME"] = tempfile.mkdtemp(prefix="stillme-tests-")
os.environ["NO_PROXY"] = "127.0.0.1,localhost"


def _only_this_machine() -> None:
    """Names of other machines are unknown and their addresses unreachable, also to code that asks by default."""
    look_up, connect = socket.getaddrinfo, socket.socket.connect
    own = {"", "localhost", socket.gethostname()}

    def is_here(host: object) -> bool:
        name = host.decode() if isinstance(host, bytes) else str(host or "")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in own
        return address.is_loopback or address.is_unspecified or name in own

    def looked_up(host: Any, *rest: Any, **named: Any) -> Any:
        if not is_here(host):
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not this machine")
        return look_up(host, *rest, **named)

    def connected(self: socket.socket, address: Any) -> None:
        # Ray "connects" a datagram socket to learn this machine's address; nothing is sent.
        by_name = self.family in (socket.AF_INET, socket.AF_INET6) and self.type == socket.SOCK_STREAM
        if by_name and not is_here(address[0]):
            raise ConnectionRefusedError(f"{address[0]} is not this machine")
        connect(self, address)

    with suppress(OSError):  # a machine need not know its own name
        own.update(str(entry[4][0]) for entry in look_up(socket.gethostname(), None))
    socket.getaddrinfo = looked_up
    socket.socket.connect = connected


_only_this_machine()

settings.register_profile("stillme", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("stillme")


LONG = {"test_docs", "test_tutorials", "test_examples", "test_calibrating", "test_kills", "test_pictures_elsewhere"}
"""Modules with tests of ten seconds and more that need no fixture of their module."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """What a module makes for all of its tests is made by one worker, and long tests are not the last to begin."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        of_module = any(fixture.scope == "module" for named in fixtures for fixture in named)
        if of_module and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(Path(__file__).parent))))
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What soak tests measured (`record_property`), for the notes of a release."""
    passed = [report for report in terminalreporter.stats.get("passed", ()) if "soak" in report.keywords]
    measured = [report for report in passed if report.user_properties]
    if measured:
        terminalreporter.section("figures")
    for report in measured:
        figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
        terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {figures}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Not for the whole session: its event loop is in the way of tests that run their own."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page, which must neither complain nor fetch anything but data and what begins with `only`."""
    pages: list[Page] = []
    wrong: list[str] = []

    def opened(address: str, only: str = "file:", **options: Any) -> Page:
        page = browser.new_page(**options)
        pages.append(page)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(("data:", only)) else wrong.append(asked.url))
        page.goto(address)
        return page

    yield opened
    for page in pages:
        page.close()
    assert wrong == []


@pytest.fixture
def portraits(tmp_path: Path) -> Path:
    """A folder of six plain pictures in two groups."""
    folder = tmp_path / "portraits"
    folder.mkdir()
    rows = ["file,group,licence,label_origin"]
    for index in range(6):
        picture = np.full((16, 16, 3), 40 * index, dtype=np.uint8)
        Image.fromarray(picture).save(folder / f"p{index}.png")
        rows.append(f"p{index}.png,{'ab'[index % 2]},CC0-1.0,made up")
    (folder / "portraits.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture
def write_audit(tmp_path: Path, portraits: Path) -> Callable[..., Path]:
    """Write an audit.toml over the six pictures and return its folder."""

    def write(
        editor: str = 'use = "noop"',
        judge: str = 'use = "scripted"',
        prompts: str = '["O-01", "O-02"]',
        extra: str = "",
    ) -> Path:
        folder = tmp_path / "audit"
        folder.mkdir(exist_ok=True)
        (folder / "audit.toml").write_text(
            f"""
title = "A test"
[portraits]
source = "{portraits}"
[prompts]
only = {prompts}
[[editors]]
{editor}
[[judges]]
{judge}
[estimates]
factors = ["group"]
{extra}
"""
        )
        return folder

    return write


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of `stillme demo`, and what it printed. Those who ask for it are of the group `site`, so it is one."""
    from tests.processes import installed, typed

    here = tmp_path_factory.mktemp("demo")
    done = typed("stillme demo", cwd=here, environment=installed())
    assert done.returncode == 0, done.stderr
    return here / "stillme-demo", done.stdout


@pytest.fixture
def loopback() -> Iterator[Callable[[Callable[[Loopback, Asked], Says]], Loopback]]:
    """Start servers on this machine: `loopback(OPENAI.behave)`."""
    with ExitStack() as stack:
        yield lambda behave: stack.enter_context(serving(behave))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """S3 on loopback."""
    from tests.buckets import S3

    service = S3()
    yield service
    service.stop()


@pytest.fixture
def bucket(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that this process and those it starts may use, and a cache of their own."""
    with s3.bucket() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))
        yield made
