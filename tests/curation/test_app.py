from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from stillme.curation.checks import read_checks
from stillme.curation.decisions import Log
from stillme.curation.pages.app import create
from stillme.curation.pages.overview import Filter, neighbours, tiles
from stillme.curation.pages.workspace import Workspace, clean_name
from stillme.curation.pools import Pools
from stillme.web.app import Site
from stillme.web.sessions import SingleUser

HOME = "http://127.0.0.1:8470"
SITE = Site(title="Curate", package="stillme.curation.pages")


class Visit:
    """A browser without a screen: one curator, let in with the key."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.user = SingleUser(SITE)
        self.client = TestClient(create(workspace, SITE, self.user), base_url=HOME, headers={"Origin": HOME})
        self.client.get(self.user.entry_path)

    def enter(self, name: str) -> None:
        self.curator = name
        answer = self.client.post("/name", data={"csrf": self.user.csrf, "name": name})
        assert answer.status_code == 200

    def act(self, kind: str, detail: dict[str, object] | None = None, *, cell: int = 1, **changes: object):
        token = changes.pop("token", f"{kind}-{len(self.workspace._log.actions()):020}")
        csrf = changes.pop("csrf", self.user.csrf)
        asked = {"curator": self.curator, "cell": cell, "kind": kind, "detail": detail or {}, "token": token} | changes
        return self.client.post("/act", json=asked, headers={"X-CSRF": str(csrf)})


@pytest.fixture
def workspace(pools: Pools) -> Iterator[Workspace]:
    log = Log(pools)
    yield Workspace(pools, log, read_checks(pools.folder))
    log.close()


@pytest.fixture
def visit(workspace: Workspace) -> Iterator[Visit]:
    made = Visit(workspace)
    with made.client:
        made.enter("Ada")
        yield made


def ids(visit: Visit, cell: int = 1) -> list[str]:
    return [candidate.id for candidate in visit.workspace.pools.cells[visit.workspace.cell(cell)]]


def test_nobody_gets_in_without_the_key(workspace: Workspace):
    with TestClient(create(workspace, SITE, SingleUser(SITE)), base_url=HOME) as stranger:
        for path in ("/", "/cell/1", f"/picture/{workspace.pools.candidates[0].id}/small"):
            assert stranger.get(path).status_code == 403


def test_nothing_on_the_page_tells_the_pool_or_the_file(visit: Visit):
    page = visit.client.get("/cell/1").text
    for candidate in visit.workspace.pools.cells[visit.workspace.cell(1)]:
        assert candidate.id in page
        assert candidate.sha256 not in page
        assert candidate.source not in page
    assert not re.search(r"pool\s*\d", page, flags=re.IGNORECASE)


def test_no_criterion_is_ticked_beforehand_and_hints_come_with_values(visit: Visit):
    page = visit.client.get("/cell/1").text
    boxes = re.findall(r"<input type=\"checkbox\"[^>]*>", page)
    assert len(boxes) == 3 * 6 + 10 + 1
    assert not any("checked" in box for box in boxes)
    assert visit.workspace.state("Ada", visit.workspace.cell(1))["ticked"] == {}
    assert "no doubt: turned sideways" in page
    assert re.search(r"head tilted −?\d+°", page)


def test_the_order_is_logged_the_first_time_and_stays(visit: Visit):
    first = re.findall(r'data-id="(\w+)"', visit.client.get("/cell/1").text)
    again = re.findall(r'data-id="(\w+)"', visit.client.get("/cell/1").text)
    assert first == again
    opened = [action for action in visit.workspace._log.actions() if action.kind == "open"]
    assert [action.detail["order"] for action in opened] == [first]


def test_an_action_is_on_disk_when_the_page_hears_of_it(visit: Visit):
    candidate = ids(visit)[0]
    answer = visit.act("choose", {"candidate": candidate})
    assert answer.json()["chosen"] == [candidate]
    other = Log(visit.workspace.pools)
    assert other.actions()[-1].detail == {"candidate": candidate}
    other.close()


def test_a_retry_counts_once_even_when_it_undoes(visit: Visit):
    first, second, _ = ids(visit)
    visit.act("choose", {"candidate": first})
    visit.act("choose", {"candidate": second})
    for _ in range(3):
        answer = visit.act("undo", token="the very same undo")
    assert answer.json()["chosen"] == [first]


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("choose", {"candidate": "nobody"}),
        ("choose", {}),
        ("tick", {"candidate": "HERE", "criterion": "beauty"}),
        ("reject", {"candidate": "HERE", "reasons": []}),
        ("reject", {"candidate": "HERE", "reasons": ["ugly"]}),
        ("settle", {"candidates": []}),
        ("rule", {"curators": 1}),
        ("dance", {}),
    ],
)
def test_what_no_page_would_ask_for_is_refused_and_not_logged(visit: Visit, kind: str, detail: dict[str, object]):
    asked = {name: ids(visit)[0] if value == "HERE" else value for name, value in detail.items()}
    before = len(visit.workspace._log.actions())
    assert visit.act(kind, asked).status_code == 422
    assert len(visit.workspace._log.actions()) == before


def test_a_candidate_of_another_cell_is_refused(visit: Visit):
    assert visit.act("choose", {"candidate": ids(visit, 2)[0]}).json()["error"].startswith("This candidate does not")


def test_actions_need_the_token_of_the_page_and_the_same_name(visit: Visit):
    candidate = {"candidate": ids(visit)[0]}
    assert visit.act("choose", candidate, csrf="wrong").status_code == 403
    assert visit.act("choose", candidate, curator="Bo").status_code == 409
    assert visit.act("choose", candidate, cell=99).status_code == 404
    assert visit.workspace._log.actions() == ()


@pytest.mark.parametrize("name", ["", "   ", "x" * 41, "a\x07b", "stillme"])
def test_a_name_must_be_one(visit: Visit, name: str):
    answer = visit.client.post("/name", data={"csrf": visit.user.csrf, "name": name})
    assert answer.status_code == 422
    assert "Give a name" in answer.text


def test_names_in_any_script_are_kept(visit: Visit):
    visit.enter("Žofie 李")
    assert "Žofie 李, you have decided 0 of 4." in visit.client.get("/").text
    assert clean_name("  Ada   B ") == "Ada B"


def test_a_name_is_text_and_never_markup(visit: Visit):
    visit.enter("<b>x</b>")
    visit.client.get("/cell/1")
    visit.act("choose", {"candidate": ids(visit)[0]})
    assert "<b>x" not in visit.client.get("/").text
    assert "<b>x" not in visit.client.get("/cell/1").text


def test_the_grid_counts_and_filters(visit: Visit):
    visit.act("choose", {"candidate": ids(visit, 1)[0]}, cell=1)
    visit.act("none", {"note": "too dark"}, cell=2)
    visit.act("tick", {"candidate": ids(visit, 3)[0], "criterion": "focus"}, cell=3)
    assert "you have decided 2 of 4" in visit.client.get("/").text

    def left(**query: str) -> list[int]:
        return [
            tile.number for tile in tiles(visit.workspace, "Ada", Filter.of(visit.workspace, query)) if tile.matches
        ]

    assert left() == [1, 2, 3, 4]
    assert left(show="todo") == [3, 4]
    assert left(show="mine") == [1, 2]
    assert left(show="empty") == [2]
    assert left(preset="B") == [3, 4]
    assert left(preset="B", gender_presentation="feminine") == [3]
    assert left(preset="no such", show="nonsense") == [1, 2, 3, 4]
    todo = tiles(visit.workspace, "Ada", Filter.of(visit.workspace, {"show": "todo"}))
    assert neighbours(todo, 1) == (4, 3)
    assert neighbours(todo, 3) == (4, 4)
    assert "Open the first of 2" in visit.client.get("/?show=todo").text
    assert "/cell/3?show=todo" in visit.client.get("/?show=todo").text


def test_disagreement_is_settled_without_showing_who_chose_whom(workspace: Workspace, visit: Visit):
    first, second, third = ids(visit)
    visit.act("choose", {"candidate": first})
    visit.enter("Bo")
    visit.act("choose", {"candidate": second})
    assert "To be settled" in visit.client.get("/").text
    page = visit.client.get("/settle/1").text
    assert first in page
    assert second in page
    assert third not in page
    assert "Ada" not in page
    nothing = visit.client.post("/settle/1", data={"csrf": visit.user.csrf})
    assert nothing.status_code == 422
    both = {f"candidate-{candidate}": "on" for candidate in (first, second)}
    assert "Choose 1" in visit.client.post("/settle/1", data={"csrf": visit.user.csrf} | both).text
    done = visit.client.post(
        "/settle/1", data={"csrf": visit.user.csrf, f"candidate-{second}": "on", "note": "sharper"}
    )
    assert done.status_code == 200
    assert workspace.tally.outcomes[workspace.cell(1)].chosen == (second,)
    assert "To be settled" not in visit.client.get("/").text


def test_others_choices_are_not_shown_before_ones_own(visit: Visit):
    visit.act("choose", {"candidate": ids(visit)[0]})
    visit.act("reject", {"candidate": ids(visit)[1], "reasons": ["focus"], "note": "soft"})
    visit.enter("Bo")
    state = visit.workspace.state("Bo", visit.workspace.cell(1))
    assert (state["chosen"], state["rejected"], state["can_undo"]) == ([], {}, False)
    assert "Ada" not in visit.client.get("/cell/1").text


def test_pictures_are_sent_without_their_metadata_and_names(visit: Visit):
    candidate = visit.workspace.pools.candidates[0]
    small, large = (visit.client.get(f"/picture/{candidate.id}/{size}") for size in ("small", "large"))
    assert small.headers["content-type"] == "image/webp"
    assert b"EXIF" not in small.content
    assert len(small.content) < len(large.content)
    assert visit.client.get("/picture/nobody/small").status_code == 404
    assert visit.client.get(f"/picture/{candidate.id}/huge").status_code == 422


def test_how_many_curators_a_cell_needs_is_part_of_the_log(workspace: Workspace, visit: Visit):
    workspace.require_curators(2)
    workspace.require_curators(2)
    visit.act("choose", {"candidate": ids(visit)[0]})
    assert workspace.tally.outcomes[workspace.cell(1)].state == "open"
    assert [action.kind for action in workspace._log.actions()] == ["rule", "choose"]
    assert "A cell counts when 2 curators have decided it" in visit.client.get("/").text
