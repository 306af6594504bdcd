"""Judges that are not instruments: models, people, imported scores, and the scripted judge for tests."""
