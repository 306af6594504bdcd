"""Editors with open weights: diffusers pipelines in this process, or a worker in an environment of its own.

`pipelines.toml` says how each pipeline class is called, `presets.toml` which weights and settings have a name. Code
never asks what a model is called.
"""
