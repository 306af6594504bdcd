"""Which two editors, of which runs."""

from __future__ import annotations

from dataclasses import dataclass

from stillme.audit.design import EditorRecord
from stillme.core.errors import StillmeError, UnknownName
from stillme.runs import Results, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One editor of one run."""

    run: Run
    editor: EditorRecord

    @property
    def results(self) -> Results:
        """The run's rows, as columns."""
        return self.run.results

    @property
    def label(self) -> str:
        """The editor's name."""
        return self.editor.name


def pick(run: Run, name: str | None) -> Chosen:
    """One of a run's editors; None stands for its only one."""
    known = {editor.name: editor for editor in run.design.editors}
    if name is None and len(known) > 1:
        raise StillmeError(
            f"{run.opened_from} has several editors ({', '.join(known)}). Name the two to compare: --editors A B."
        )
    if name is not None and name not in known:
        raise UnknownName.among("editor", name, known, f"{run.opened_from} has {', '.join(known)}.")
    return Chosen(run=run, editor=run.design.editors[0] if name is None else known[name])


def choose(first: Run, second: Run | None, names: tuple[str, str] | None) -> tuple[Chosen, Chosen]:
    """The two to compare: of two runs, or of one."""
    if second is None and names is None:
        raise StillmeError(
            f"Only one run is named ({first.opened_from}). Name a second run, or two editors of this: --editors A B."
        )
    one, other = names or (None, None)
    return pick(first, one), pick(second or first, other)
