"""Editors behind an API: one adapter per protocol; refusals, failures, rate limits and cost are handled once."""
