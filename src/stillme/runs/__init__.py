"""What a run holds: opened from its folder alone, as the columns that estimates are computed from."""

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.runs.gathering import Results, combined, joined
    from stillme.runs.run import RecordedRun, Row, folder_of, opened

__all__ = ["RecordedRun", "Results", "Row", "combined", "folder_of", "joined", "opened"]

__getattr__ = deferred(
    __name__, gathering=("Results", "combined", "joined"), run=("RecordedRun", "Row", "folder_of", "opened")
)
