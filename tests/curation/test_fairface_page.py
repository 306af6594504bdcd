"""docs/fairface.md works as it stands, on made-up pictures in FairFace's published layout."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme import audit
from stillme.curation.decisions import Log
from stillme.curation.pools import load_pools
from tests.command_lines import ran

PAGE = Path(__file__).parents[2] / "docs" / "fairface.md"
FEW = ("--only", "race=White,Black", "--only", "age=20s,70+", "--pools", "2", "--no-checks")
"""So that eight cells and not 84 are filled."""


def test_every_command_of_the_page_works(
    fairface: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fairface()
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 12
    for line in lines:
        match shlex.split(line)[1:]:
            case ["portraits", "curate", pools, *_]:
                _choose(Path(pools))
                continue
            case ["portraits", "sample", *_] as arguments:
                arguments += FEW
            case ["run", folder]:
                _make_cheap(Path(folder) / "audit.toml")
                arguments = ["run", folder]
            case arguments:
                pass
        ran(*arguments)
    diagnosis = audit.load(tmp_path / "diagnosis")
    assert diagnosis.factors == ("race", "gender", "age")
    assert {portrait.attributes["race"] for portrait in diagnosis.portraits} == {"White", "Black"}
    mitigation = tomllib.loads((tmp_path / "mitigation" / "audit.toml").read_text())
    assert mitigation["portraits"]["source"] == "../my-set/v1"
    assert mitigation["reuse"]["runs"] == ["../diagnosis"]
    roles = audit.load(tmp_path / "roles", ready=False)
    assert roles.request_count(roles.editors[0]) == 50
    assert (tmp_path / "diagnosis" / "tables" / "paper").is_dir()


def _choose(folder: Path) -> None:
    """What two curators do in the browser."""
    pools = load_pools(folder)
    log = Log(pools)
    for cell in pools.design.cells:
        for curator in ("Ada", "Ben"):
            log.append(curator, cell, "choose", {"candidate": pools.cells[cell][0].id})
    log.close()


def _make_cheap(file: Path) -> None:
    """Editors and judges that need neither GPU nor key."""
    head, _, rest = file.read_text().partition("# The paper's three editors")
    estimates = rest[rest.index("[estimates]") :]
    file.write_text(f'{head}\n[[editors]]\nuse = "noop"\n[[judges]]\nuse = "scripted"\n{estimates}')
