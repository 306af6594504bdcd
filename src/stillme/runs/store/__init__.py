"""A run's storage: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.runs.store.assessments import AssessmentRow
from stillme.runs.store.attempts import Attempt
from stillme.runs.store.edits import EditRow, StoredEdit
from stillme.runs.store.features import FeatureRow
from stillme.runs.store.ledger import Store, StoredAudit
from stillme.runs.store.sentinels import SentinelRow, StoredSentinel
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
