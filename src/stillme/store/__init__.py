"""A run's storage: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.store.attempts import Attempt
from stillme.store.features import FeatureRow
from stillme.store.ledger import AssessmentRow, EditRow, Store, StoredAudit, StoredEdit
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
