"""The run's memory: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.store.features import FeatureRow
from stillme.store.ledger import AssessmentRow, EditRow, Store, StoredAudit, StoredEdit, Totals

__all__ = ["AssessmentRow", "EditRow", "FeatureRow", "Store", "StoredAudit", "StoredEdit", "Totals"]
