"""Audits image editors: does the edit happen, does the person stay the same, and does that hold for everyone?

Everything here is imported when it is first used, so that `import stillme` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillme.api.python import Audit, Run, check, estimate, feature_prompt, function_judge, measure, open, run
    from stillme.core.errors import Refusal, StillmeError
    from stillme.core.protocols import Capabilities, Editor, Judge, JudgeCapabilities
    from stillme.core.types import (
        Abstained,
        Arm,
        Assessment,
        Edited,
        Estimate,
        Failed,
        ImageFile,
        Interval,
        NotEstimable,
        Pair,
        Portrait,
        Prompt,
        Rated,
        Refused,
        Request,
        Spec,
    )

__version__ = "0.3.0"

__all__ = [
    "Abstained",
    "Arm",
    "Assessment",
    "Audit",
    "Capabilities",
    "Edited",
    "Editor",
    "Estimate",
    "Failed",
    "ImageFile",
    "Interval",
    "Judge",
    "JudgeCapabilities",
    "NotEstimable",
    "Pair",
    "Portrait",
    "Prompt",
    "Rated",
    "Refusal",
    "Refused",
    "Request",
    "Run",
    "Spec",
    "StillmeError",
    "check",
    "estimate",
    "feature_prompt",
    "function_judge",
    "measure",
    "open",
    "run",
]

_HOME = {
    **dict.fromkeys(("Refusal", "StillmeError"), "stillme.core.errors"),
    **dict.fromkeys(("Capabilities", "Editor", "Judge", "JudgeCapabilities"), "stillme.core.protocols"),
    **dict.fromkeys(
        ("Audit", "Run", "check", "estimate", "feature_prompt", "function_judge", "measure", "open", "run"),
        "stillme.api.python",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stillme' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "stillme.core.types")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
