"""Find the edit of an audit's run that a row is about."""

from __future__ import annotations

from collections.abc import Mapping

from stillme.audit.design import RecordedRequest
from stillme.core.errors import did_you_mean
from stillme.core.types import Arm
from stillme.findings.exchange.appending import RatedEdit
from stillme.findings.exchange.columns import EDIT_COLUMNS, Layout, Unreadable
from stillme.findings.exchange.table_files import Row
from stillme.runs import Run


class RunEdits:
    """The edits of a run; rows add none."""

    def __init__(self, layout: Layout, run: Run) -> None:
        self._layout, self._design = layout, run.design
        self.edits: list[RatedEdit] = []
        self.requests: list[RecordedRequest] = []
        self._outcomes: list[str] = []
        self._by_key: dict[str, int] = {}
        self._by_name: dict[tuple[str, str, str, str, int], int] = {}
        for row in run.rows():
            request = row.request
            if request.withheld:
                continue
            place = self._by_key[request.key] = len(self.edits)
            portraits = "+".join(request.portraits)
            self._by_name[request.editor, portraits, request.prompt, request.arm, request.seed] = place
            self.edits.append(RatedEdit(request.key, row.image))
            self.requests.append(request)
            self._outcomes.append(row.edit.outcome if row.edit else "")

    def subcategory(self, edit: int) -> str:
        """Of its prompt."""
        return self._design.prompt_by_id[self.requests[edit].prompt].subcategory

    def place(self, key: str) -> int | None:
        """The number of an edit."""
        return self._by_key.get(key)

    def find(self, row: Row, arm: str, *, has_scores: bool) -> int:
        """The edit of a row, by its key or by what was requested."""
        del has_scores
        which = {name: value for name in EDIT_COLUMNS if (value := self._layout.cell(row, name))}
        if arm:
            which["arm"] = arm
        if key := which.get("edit"):
            edit = self._by_key.get(key)
            if edit is None:
                raise Unreadable(f"no edit {key!r} in this audit; `stillme export` lists the keys of a run")
        else:
            edit = self._named(which)
        if not self._outcomes[edit]:
            raise Unreadable("this edit was never made; `stillme run` makes it")
        if not self.edits[edit].image:
            raise Unreadable(f"this edit was {self._outcomes[edit]}, so there is no picture to rate; remove the row")
        return edit

    def _named(self, which: Mapping[str, str]) -> int:
        design = self._design
        for name in ("portrait", "prompt"):
            if name not in which:
                raise Unreadable(f"no {name}; name its column with --map {name}=COLUMN, or give the edit's key")
        editors = {named.name: named for named in design.editors}
        editor = which.get("editor") or (next(iter(editors)) if len(editors) == 1 else "")
        if editor not in editors:
            unknown = f"no editor {editor!r} in this audit.{did_you_mean(editor, editors)}" if editor else "no editor."
            raise Unreadable(f"{unknown} Known: {', '.join(editors)}")
        arm = which.get("arm", Arm.BASELINE.value)
        if arm not in design.arms:
            raise Unreadable(f"no arm {arm!r} in this audit; it has {', '.join(design.arms)}")
        seeds = editors[editor].seeds
        seed = which.get("seed", str(seeds[0]) if len(seeds) == 1 else "")
        if seed not in map(str, seeds):
            raise Unreadable(f"{f'no seed {seed!r}' if seed else 'no seed'}; {editor} has {', '.join(map(str, seeds))}")
        edit = self._by_name.get((editor, which["portrait"], which["prompt"], arm, int(seed)))
        if edit is not None:
            return edit
        for name, known in (
            ("portrait", {portraits for _, portraits, _, _, _ in self._by_name}),
            ("prompt", {prompt for _, _, prompt, _, _ in self._by_name}),
        ):
            if which[name] not in known:
                raise Unreadable(f"no {name} {which[name]!r} in this audit.{did_you_mean(which[name], known)}")
        raise Unreadable(f"{which['portrait']} × {which['prompt']} is no request to {editor} in the {arm} arm")
