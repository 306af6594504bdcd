"""Everything that runs out of process: one supervisor, one set of sentences, and a worker that answers in frames.

`program.py` starts a command line once a call. `worker.py` keeps a process between calls; `serve.py` runs in it.
"""
