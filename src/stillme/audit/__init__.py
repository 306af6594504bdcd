"""audit.toml: what to edit, with what, judged by whom; checked whole before anything runs."""

from stillme.audit.load import load
from stillme.audit.plan import Audit, NamedEditor, NamedExtractor, NamedJudge

__all__ = ["Audit", "NamedEditor", "NamedExtractor", "NamedJudge", "load"]
