"""What a plugin builds on: everything under one name that stays."""

from stillme.core.errors import Refusal, UnreadableImage
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
from stillme.editors.hosted.catalogue import Price, Usage
from stillme.editors.hosted.editor import Answer, Call, Hosted, HostedParameters
from stillme.editors.hosted.encoded_images import EncodedImage, from_base64
from stillme.editors.hosted.faults import CallFailed, Declined, from_connection, from_status, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Reply
from stillme.portraits.synthetic import portraits as synthetic_portraits

__all__ = [
    "Abstained",
    "Answer",
    "Assessment",
    "Call",
    "CallFailed",
    "Capabilities",
    "Declined",
    "EditOutcome",
    "Edited",
    "Editor",
    "EncodedImage",
    "Failed",
    "Hosted",
    "HostedParameters",
    "ImageFile",
    "JsonClient",
    "Judge",
    "JudgeCapabilities",
    "Needs",
    "Pair",
    "Parameters",
    "Portrait",
    "Price",
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
    "from_connection",
    "from_status",
    "spec_of",
    "synthetic_portraits",
    "unexpected_answer",
]
