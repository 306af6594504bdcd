"""Editors: each an adapter behind the one `Editor` protocol."""
