"""The second long stage: every edit that a judge has not seen yet is shown to it."""

from stillme.judgements.stage import judge

__all__ = ["judge"]
