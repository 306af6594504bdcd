"""A module that ends the process that imports it."""

raise SystemExit("not on this machine")
