"""audit.toml: what to edit, with what, judged by whom; checked whole before anything runs."""

from stillme.audit.changes import explain_changes
from stillme.audit.described import with_features
from stillme.audit.load import load, require_unchanged
from stillme.audit.plan import Audit, NamedEditor, NamedExtractor, NamedJudge

__all__ = [
    "Audit",
    "NamedEditor",
    "NamedExtractor",
    "NamedJudge",
    "explain_changes",
    "load",
    "require_unchanged",
    "with_features",
]
