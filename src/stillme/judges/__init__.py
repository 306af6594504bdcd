"""Judges that are not instruments: models, and the scripted judge for tests."""
