"""Which two editors, of which runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stillme import results
from stillme.audit import Audit, NamedEditor
from stillme.errors import StillmeError, UnknownName
from stillme.results import Results
from stillme.stages import described
from stillme.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One editor of one run."""

    audit: Audit
    results: Results
    editor: NamedEditor

    @property
    def label(self) -> str:
        """The editor's name."""
        return self.editor.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's configuration and rows, read once."""

    audit: Audit
    results: Results

    def pick(self, name: str | None) -> Chosen:
        """One of its editors; None stands for its only one."""
        known = {named.name: named for named in self.audit.editors}
        if name is None and len(known) > 1:
            raise StillmeError(
                f"{self.audit.folder} has several editors ({', '.join(known)}). "
                "Say which two to compare: --editors A B."
            )
        if name is not None and name not in known:
            raise UnknownName.among("editor", name, known, f"{self.audit.folder} has {', '.join(known)}.")
        editor = self.audit.editors[0] if name is None else known[name]
        return Chosen(audit=self.audit, results=self.results, editor=editor)


def read(path: Path) -> Run:
    """Read the run of an audit."""
    loaded = described.load(path, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    with Store.reading(loaded.folder) as store:
        return Run(audit=loaded, results=results.gather(loaded, store))


def choose(first: Path, second: Path | None, names: tuple[str, str] | None) -> tuple[Chosen, Chosen]:
    """The two to compare: of two runs, or of one."""
    if second is None and names is None:
        raise StillmeError(f"Compare {first} with what? Name a second run, or two editors of this one: --editors A B.")
    one, other = names or (None, None)
    run = read(first)
    return run.pick(one), (run if second is None else read(second)).pick(other)
