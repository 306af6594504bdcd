"""An editor in a process and an environment of its own, for weights that need other libraries than ours.

`serve.py` runs there and imports nothing of stillme; `process.py` runs here.
"""
