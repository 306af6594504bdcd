"""Before a run: what it will cost, which gaps it can see, and what another design would buy."""

from stillme.findings.plan.assumptions import Assumptions, PlanOptions
from stillme.findings.plan.plan import Plan, plan_audit
from stillme.findings.plan.requests import RequestList, write_requests

__all__ = ["Assumptions", "Plan", "PlanOptions", "RequestList", "plan_audit", "write_requests"]
