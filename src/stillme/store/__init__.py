"""A run's storage: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.store.assessments import AssessmentRow
from stillme.store.attempts import Attempt
from stillme.store.edits import EditRow, StoredEdit
from stillme.store.features import FeatureRow
from stillme.store.ledger import Store, StoredAudit
from stillme.store.sentinels import SentinelRow, StoredSentinel
from stillme.store.summaries import Totals

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
