"""A run's storage: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.runs.store.ledger import Store, StoredAudit
from stillme.runs.store.rows import AssessmentRow, Attempt, EditRow, FeatureRow, SentinelRow, StoredEdit, StoredSentinel
from stillme.runs.store.summaries import Totals

__all__ = [
    "AssessmentRow",
    "Attempt",
    "EditRow",
    "FeatureRow",
    "SentinelRow",
    "Store",
    "StoredAudit",
    "StoredEdit",
    "StoredSentinel",
    "Totals",
]
