"""Editors with open weights: diffusers pipelines in this process, or a worker in its own environment.

`pipelines.toml` says how each pipeline class is called, `presets.toml` names weights and settings. The code never
branches on a model's name.
"""
