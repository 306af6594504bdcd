"""stillme as a library: run an audit, open a run, look at one picture; the command line calls the same functions."""
