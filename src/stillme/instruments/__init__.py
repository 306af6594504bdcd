"""Measure, on a CPU and offline, what an edit did to a person."""
