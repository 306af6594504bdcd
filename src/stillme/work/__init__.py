"""The long stages: describe, edit, judge. Each does what has no row yet, and keeps each result as it comes."""
