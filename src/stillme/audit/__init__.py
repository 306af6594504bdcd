"""audit.toml: what to edit, with what, judged by whom; checked whole before anything runs."""

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.audit.audit import Audit, NamedEditor, NamedExtractor, NamedJudge
    from stillme.audit.loading import load

__all__ = ["Audit", "NamedEditor", "NamedExtractor", "NamedJudge", "load"]

__getattr__ = deferred(__name__, loading=("load",), audit=("Audit", "NamedEditor", "NamedExtractor", "NamedJudge"))
