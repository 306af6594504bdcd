"""Editors: adapters behind the `Editor` protocol."""
