"""Before a run: what it will cost, which gaps it can see, and what another design would buy."""

from stillme.planning.assumptions import Asked, Assumed
from stillme.planning.plan import Plan, plan_audit

__all__ = ["Asked", "Assumed", "Plan", "plan_audit"]
