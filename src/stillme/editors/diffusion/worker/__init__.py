"""An editor in its own process and environment, for weights that need other libraries than ours.

`serve.py` runs there and does not import stillme; `process.py` runs here.
"""
