"""A run's storage: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.runs.store.ledger import Store, StoredAudit
from stillme.runs.store.rows import (
    AssessmentRow,
    Attempt,
    ControlPairRow,
    EditRow,
    FeatureRow,
    StoredControlPair,
    StoredEdit,
)
from stillme.runs.store.summaries import Totals

__all__ = [
    "AssessmentRow",
    "Attempt",
    "ControlPairRow",
    "EditRow",
    "FeatureRow",
    "Store",
    "StoredAudit",
    "StoredControlPair",
    "StoredEdit",
    "Totals",
]
