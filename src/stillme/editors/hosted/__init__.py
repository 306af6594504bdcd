"""Editors that run elsewhere: one adapter per protocol, one way to refuse, fail, wait and count money."""
