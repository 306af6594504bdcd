from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from stillme.curation.app import Filter, create, neighbours, tiles
from stillme.curation.decisions import Log
from stillme.curation.measuring import read_checks
from stillme.curation.pools import Pools
from stillme.curation.workspace import NotAllowed, Workspace, clean_name
from stillme.web.app import KeyHolders, Site, csrf_of

HOME = "http://127.0.0.1:8470"
SITE = Site(title="Curate", package="stillme.curation")


class Visit:
    """A browser without a screen, let in by the link of one curator after the other."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.holders = KeyHolders(SITE, "secret", ["Ada", "Bo", "Cy", "<b>x</b>", "Žofie 李"])
        self.client = TestClient(create(workspace, SITE, self.holders), base_url=HOME, headers={"Origin": HOME})

    def enter(self, name: str) -> None:
        self.curator = name
        assert self.client.get(self.holders.entry_path(name)).status_code == 200

    @property
    def csrf(self) -> str:
        return csrf_of(self.holders.keys[self.curator])

    def act(self, kind: str, detail: dict[str, object] | None = None, *, cell: int = 1, **changes: object):
        token = changes.pop("token", f"{kind}-{len(self.workspace._log.actions()):020}")
        csrf, curator = changes.pop("csrf", self.csrf), changes.pop("curator", self.curator)
        action = {"cell": cell, "kind": kind, "detail": detail or {}, "token": token} | changes
        asked = {"curator": curator, "actions": [action]}
        return self.client.post("/act", json=asked, headers={"X-CSRF": str(csrf)})

    def choose(self, name: str, candidate: str, cell: int = 1) -> None:
        self.enter(name)
        assert self.act("choose", {"candidate": candidate}, cell=cell).json()["refused"] == {}

    def compare(self) -> None:
        assert self.client.post("/compare", data={"csrf": self.csrf}).status_code == 200

    def settle(self, cell: int = 1, **fields: str):
        return self.client.post(f"/settle/{cell}", data={"csrf": self.csrf, **fields})


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


def contested(visit: Visit) -> list[str]:
    """Ada and Bo choose differently; the candidates."""
    candidates = ids(visit)
    visit.choose("Ada", candidates[0])
    visit.choose("Bo", candidates[1])
    return candidates


def ids(visit: Visit, cell: int = 1) -> list[str]:
    return [candidate.id for candidate in visit.workspace.pools.cells[visit.workspace.cell(cell)]]


def test_nobody_gets_in_without_the_key(workspace: Workspace):
    with TestClient(create(workspace, SITE, KeyHolders(SITE, "secret", ["Ada"])), base_url=HOME) as stranger:
        for path in ("/", "/cell/1", f"/picture/{workspace.pools.candidates[0].id}/small"):
            assert stranger.get(path).status_code == 403


def test_nothing_on_the_page_tells_the_pool_or_the_file(visit: Visit):
    page = visit.client.get("/cell/1").text
    for candidate in visit.workspace.pools.cells[visit.workspace.cell(1)]:
        assert candidate.id in page
        assert candidate.sha256 not in page
        assert candidate.file not in page
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
    assert answer.json() == {"refused": {}, "states": {"1": visit.workspace.state("Ada", visit.workspace.cell(1))}}
    assert answer.json()["states"]["1"]["chosen"] == [candidate]
    other = Log(visit.workspace.pools)
    assert other.actions()[-1].detail == {"candidate": candidate}
    other.close()


def test_a_retry_counts_once_even_when_it_undoes(visit: Visit):
    first, second, _ = ids(visit)
    visit.act("choose", {"candidate": first})
    visit.act("choose", {"candidate": second})
    for _ in range(3):
        answer = visit.act("undo", token="the very same undo")
    assert answer.json()["states"]["1"]["chosen"] == [first]


def test_a_tick_of_all_criteria_is_one_action_and_undone_as_one(visit: Visit):
    candidate = ids(visit)[0]
    visit.act("tick", {"candidate": candidate, "criterion": "focus"})
    ticked = visit.act("tick_all", {"candidate": candidate}).json()["states"]["1"]["ticked"]
    assert len(ticked[candidate]) == 6
    assert visit.act("undo").json()["states"]["1"]["ticked"] == {candidate: ["focus"]}
    kinds = [action.kind for action in visit.workspace._log.actions()]
    assert kinds == ["tick", "tick_all", "undo"]


def test_what_waits_in_a_browser_is_taken_together_and_one_refusal_keeps_nothing_else(visit: Visit):
    first, second, _ = ids(visit)
    actions = [
        {"cell": 1, "kind": "tick_all", "detail": {"candidate": first}, "token": "a" * 16},
        {"cell": 1, "kind": "choose", "detail": {"candidate": "nobody"}, "token": "b" * 16},
        {"cell": 99, "kind": "choose", "detail": {"candidate": first}, "token": "c" * 16},
        {"cell": 2, "kind": "none", "detail": {}, "token": "d" * 16},
        {"cell": 1, "kind": "choose", "detail": {"candidate": second}, "token": "e" * 16},
    ]
    said = visit.client.post("/act", json={"curator": "Ada", "actions": actions}, headers={"X-CSRF": visit.csrf}).json()
    assert sorted(said["refused"]) == ["b" * 16, "c" * 16]
    assert said["states"]["1"]["chosen"] == [second]
    assert said["states"]["2"]["none_fits"] == ""


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("choose", {"candidate": "nobody"}),
        ("choose", {}),
        ("tick", {"candidate": "HERE", "criterion": "beauty"}),
        ("reject", {"candidate": "HERE", "reasons": []}),
        ("reject", {"candidate": "HERE", "reasons": ["ugly"]}),
        ("reject", {"candidate": "HERE", "reasons": 7}),
        ("tick_all", {"candidate": "nobody"}),
        ("compare", {}),
        ("invite", {"curator": "Eve"}),
        ("settle", {"candidates": []}),
        ("rule", {"curators": 1}),
        ("dance", {}),
    ],
)
def test_what_no_page_would_ask_for_is_refused_and_not_logged(visit: Visit, kind: str, detail: dict[str, object]):
    asked = {name: ids(visit)[0] if value == "HERE" else value for name, value in detail.items()}
    before = len(visit.workspace._log.actions())
    answer = visit.act(kind, asked)
    assert answer.status_code == 422 or answer.json()["refused"]
    assert len(visit.workspace._log.actions()) == before


def test_actions_need_the_token_of_the_page_and_the_same_name(visit: Visit):
    candidate = {"candidate": ids(visit)[0]}
    assert visit.act("choose", candidate, csrf="wrong").status_code == 403
    assert visit.act("choose", candidate, curator="Bo").status_code == 409
    assert visit.act("choose", candidate, cell=99).json()["refused"]
    refused = visit.act("choose", {"candidate": ids(visit, 2)[0]}).json()["refused"]
    assert list(refused.values()) == ["This candidate does not belong to the cell."]
    assert visit.workspace._log.actions() == ()


@pytest.mark.parametrize("name", ["", "   ", "x" * 41, "a\x07b", "stillme"])
def test_a_name_must_be_one(workspace: Workspace, name: str):
    with pytest.raises(NotAllowed, match="is not a name for a curator"):
        workspace.invite([name])


def test_people_who_are_invited_stay_invited_and_nobody_twice(workspace: Workspace):
    assert workspace.invite(["Ada", " ada  ", "Bo"]) == ("Ada", "Bo")
    assert workspace.invite(["bo", "Cy"]) == ("Ada", "Bo", "Cy")
    assert workspace.invite([]) == ("Ada", "Bo", "Cy")


def test_names_in_any_script_are_kept_as_text_and_never_markup(visit: Visit):
    visit.enter("Žofie 李")
    assert "Žofie 李, you have decided 0 of 4." in visit.client.get("/").text
    assert clean_name("  Ada   B ") == "Ada B"
    visit.enter("<b>x</b>")
    visit.client.get("/cell/1")
    visit.act("choose", {"candidate": ids(visit)[0]})
    assert not [path for path in ("/", "/cell/1") if "<b>x" in visit.client.get(path).text]


def test_the_grid_counts_and_filters(visit: Visit):
    visit.act("choose", {"candidate": ids(visit, 1)[0]}, cell=1)
    visit.act("none", {"note": "too dark"}, cell=2)
    visit.act("tick", {"candidate": ids(visit, 3)[0], "criterion": "focus"}, cell=3)
    assert "you have decided 2 of 4" in visit.client.get("/").text

    def left(**query: str) -> list[int]:
        found = tiles(visit.workspace, "Ada", Filter.of(visit.workspace, query))
        return [tile.number for tile in found if tile.matches]

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
    first, second, third = contested(visit)
    visit.compare()
    assert "To be settled" in visit.client.get("/").text
    page = visit.client.get("/settle/1").text
    assert first in page
    assert second in page
    assert third not in page
    assert "Ada" not in page
    assert visit.settle().status_code == 422
    assert "Choose 1" in visit.settle(**{f"candidate-{first}": "on", f"candidate-{second}": "on"}).text
    assert "not both" in visit.settle(**{f"candidate-{first}": "on", "none_fits": "on"}).text
    assert visit.settle(**{f"candidate-{second}": "on", "note": "sharper"}).status_code == 200
    assert workspace.tally.outcomes[workspace.cell(1)].chosen == (second,)
    assert "To be settled" not in visit.client.get("/").text


def seen(visit: Visit) -> list[str]:
    """Everything that a curator can look at, without what is theirs alone."""
    paths = ("/", "/?show=contested", "/?show=empty", "/cell/1", "/settle/1")
    return [re.sub(r'"(csrf|token)": ?"[^"]*"|value="[^"]{20,}"', "", visit.client.get(path).text) for path in paths]


@pytest.mark.parametrize("own", [None, 2])
def test_every_page_is_the_same_whatever_others_chose(pools: Pools, workspace: Workspace, own: int | None):
    """Two others choose alike, differently, or nobody: whoever has not compared cannot tell which."""
    pages: list[list[str]] = []
    everybody = ids(Visit(workspace))
    for ada, bo in ((0, 0), (0, 1), (1, 1), (None, None)):
        pools.folder.joinpath("curation.sqlite").unlink(missing_ok=True)
        log = Log(pools)
        visit = Visit(Workspace(pools, log, read_checks(pools.folder)))
        for name, chosen in (("Ada", ada), ("Bo", bo)):
            visit.enter(name)
            visit.act("none") if chosen is None else visit.act("choose", {"candidate": everybody[chosen]})
        visit.enter("Cy")
        if own is not None:
            visit.act("choose", {"candidate": everybody[own]})
        pages.append(seen(visit))
        log.close()
    assert all(other == pages[0] for other in pages[1:])
    assert everybody[0] not in pages[0][4]
    assert "Ada" not in pages[0][3]


def test_settling_shows_nothing_and_takes_nothing_before_ones_own_choice_is_final(workspace: Workspace, visit: Visit):
    first, second, third = contested(visit)
    for name in ("Cy", "Bo"):  # somebody who has not decided, and somebody who has but has not compared
        visit.enter(name)
        page = visit.client.get("/settle/1")
        assert page.status_code == 403
        assert not any(candidate in page.text for candidate in (first, second, third))
        assert visit.settle(**{f"candidate-{first}": "on"}).status_code == 403
    assert workspace.tally.outcomes[workspace.cell(1)].state == "contested"


def test_cells_are_settled_only_when_enough_curators_have_decided(workspace: Workspace, visit: Visit):
    workspace.require_curators(3)
    first, _, third = contested(visit)
    visit.compare()
    assert not workspace.tally.opinion("Bo", workspace.cell(1)).compared
    assert visit.client.get("/settle/1").status_code == 403
    # A settlement that an older version took does not count either.
    workspace._log.append("Bo", workspace.cell(1), "settle", {"candidates": [first], "note": ""})
    assert workspace.tally.outcomes[workspace.cell(1)].state == "open"
    visit.choose("Cy", third)
    assert workspace.tally.outcomes[workspace.cell(1)].state == "settled"


def test_a_choice_is_final_once_it_was_compared(workspace: Workspace, visit: Visit):
    first, second, third = contested(visit)
    assert "you have decided 1 of 4" in visit.client.get("/").text
    visit.compare()
    for kind, detail in (("choose", {"candidate": first}), ("unchoose", {"candidate": second}), ("none", {})):
        assert next(iter(visit.act(kind, detail).json()["refused"].values())).startswith("You have seen whether others")
    assert visit.act("undo").json()["states"]["1"]["chosen"] == [second]
    # Settling can be undone, the choice cannot; and nobody settles what is settled.
    assert visit.settle(**{f"candidate-{first}": "on"}).status_code == 200
    assert visit.settle(**{f"candidate-{second}": "on"}).status_code == 403
    visit.act("undo")
    assert workspace.tally.outcomes[workspace.cell(1)].state == "contested"
    visit.act("undo")
    assert workspace.tally.outcomes[workspace.cell(1)].votes == {"Ada": (first,), "Bo": (second,)}
    # Ada has not compared: she may still change her mind.
    visit.choose("Ada", third)


def test_one_curator_alone_has_nothing_to_compare_and_nothing_is_final(visit: Visit):
    visit.act("choose", {"candidate": ids(visit)[0]})
    visit.compare()
    assert visit.act("undo").json()["states"]["1"]["chosen"] == []


def test_a_link_is_one_curators_and_nobody_acts_for_another(workspace: Workspace, visit: Visit):
    visit.choose("Bo", ids(visit)[0])
    key = visit.holders.keys["Ada"]
    visit.client.get(visit.holders.entry_path("Ada"))
    assert visit.act("unchoose", {"candidate": ids(visit)[0]}, curator="Bo", csrf=csrf_of(key)).status_code == 409
    assert visit.act("choose", {"candidate": ids(visit)[0]}, csrf=visit.csrf).status_code == 403
    assert workspace.tally.opinion("Bo", workspace.cell(1)).chosen == [ids(visit)[0]]


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
