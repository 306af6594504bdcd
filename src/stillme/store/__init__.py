"""The run's memory: one SQLite ledger of append-only rows, and pictures by hash."""

from stillme.store.ledger import AssessmentRow, EditRow, Store, StoredAudit, StoredEdit, Totals

__all__ = ["AssessmentRow", "EditRow", "Store", "StoredAudit", "StoredEdit", "Totals"]
