# SPDX-License-Identifier: GPL-3.0-or-later
"""Render synthetic head-and-shoulders portraits whose every parameter is known.

A maintainer's tool with its own environment (see README.md); users of `stillme`
never need it. The code is GPL because it drives Blender's `bpy`; the pictures
it makes are ours and released as CC0-1.0 (see LICENCES.md).
"""
