"""What a run holds: opened from its folder alone, as the columns that estimates are computed from."""

from stillme.results.gathering import Results, combined, joined
from stillme.results.run import Row, Run, folder_of, opened

__all__ = ["Results", "Row", "Run", "combined", "folder_of", "joined", "opened"]
