"""A web page on which people choose portraits among candidates: blind to pools, logged, resumable."""
