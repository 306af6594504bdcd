"""Calls over HTTP: an answer arrives whole and in time, or not at all."""
