"""Neural editors that run on a CPU, from weights that the user's machine fetches from a package registry."""
