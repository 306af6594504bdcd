"""Calls over HTTP: one client, one table of statuses. An answer arrives whole, in time and in size, or not at all."""
