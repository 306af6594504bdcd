"""audit.toml: what to edit, with what, judged by whom; checked whole before anything runs."""

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.audit.loading import load
    from stillme.audit.plan import Audit, NamedEditor, NamedExtractor, NamedJudge

__all__ = ["Audit", "NamedEditor", "NamedExtractor", "NamedJudge", "load"]

__getattr__ = deferred(__name__, loading=("load",), plan=("Audit", "NamedEditor", "NamedExtractor", "NamedJudge"))
