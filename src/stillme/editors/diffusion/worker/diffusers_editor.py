"""A diffusers editor on one device, as a worker of an editor that has several. Runs inside `serve.py`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from stillme.core import registry
from stillme.core.protocols import Editor


def load(parameters: dict[str, Any]) -> Editor:
    """The same editor as the parent's, on one device; the weights come with the first edit."""
    editor = registry.build(
        "editor", parameters["use"], parameters["parameters"], base=Path(parameters["base"]), ready=False
    )
    editor.keep_weights([parameters["weights"]])
    return editor


def edit(loaded: Editor, _message: dict[str, Any], attached: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The outcomes of a batch of requests. Both sides are the same program, so they may pickle."""
    return {}, [pickle.dumps(list(loaded.edit(pickle.loads(attached[0]))))]
