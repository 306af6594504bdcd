"""What a run says: tables, comparisons, gates, plans, sealed bundles, exports and the calibration of judges."""
