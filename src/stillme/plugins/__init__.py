"""What a plugin builds on: everything under one name that stays."""

from stillme.core import images
from stillme.core.errors import Refusal, UnreadableImage
from stillme.core.http.replies import CallDeclined, CallFailed, Reply, Usage, unexpected_answer
from stillme.core.images.sending import EncodedImage
from stillme.core.protocols import Capabilities, Editor, Judge, JudgeCapabilities, Needs, Parameters, spec_of
from stillme.core.types import (
    Abstained,
    Assessment,
    Edited,
    EditOutcome,
    Failed,
    ImageFile,
    Pair,
    Portrait,
    Prompt,
    Rated,
    Rating,
    Refused,
    Request,
    Spec,
)
from stillme.editors.hosted.catalogue import ModelPrice
from stillme.editors.hosted.editor import Call, Hosted, HostedAnswer, HostedParameters, from_base64
from stillme.portraits import portraits as synthetic_portraits

__all__ = [
    "Abstained",
    "Assessment",
    "Call",
    "CallDeclined",
    "CallFailed",
    "Capabilities",
    "EditOutcome",
    "Edited",
    "Editor",
    "EncodedImage",
    "Failed",
    "Hosted",
    "HostedAnswer",
    "HostedParameters",
    "ImageFile",
    "Judge",
    "JudgeCapabilities",
    "ModelPrice",
    "Needs",
    "Pair",
    "Parameters",
    "Portrait",
    "Prompt",
    "Rated",
    "Rating",
    "Refusal",
    "Refused",
    "Reply",
    "Request",
    "Spec",
    "UnreadableImage",
    "Usage",
    "from_base64",
    "images",
    "spec_of",
    "synthetic_portraits",
    "unexpected_answer",
]
