"""Speed and memory, measured against a peer or a limit in the same run. `python -m bench spine` runs one."""
