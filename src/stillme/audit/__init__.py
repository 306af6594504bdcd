"""audit.toml: what to edit, with what, judged by whom; checked whole before anything runs."""

from stillme.audit.changes import explain_changes
from stillme.audit.load import load, require_unchanged
from stillme.audit.plan import Audit, NamedEditor, NamedJudge

__all__ = ["Audit", "NamedEditor", "NamedJudge", "explain_changes", "load", "require_unchanged"]
