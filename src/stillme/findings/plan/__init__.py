"""Before a run: what it will cost, which gaps it can see, and what another design would buy."""

from stillme.findings.plan.assumptions import Assumptions, PlanOptions
from stillme.findings.plan.plan import AuditPlan, plan_audit
from stillme.findings.plan.requests import write_requests

__all__ = ["Assumptions", "AuditPlan", "PlanOptions", "plan_audit", "write_requests"]
