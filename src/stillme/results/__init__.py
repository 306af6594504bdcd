"""What a run holds, gathered into the columns that estimates are computed from."""

from stillme.results.gathering import Results, combined, gather, joined, settings_of

__all__ = ["Results", "combined", "gather", "joined", "settings_of"]
