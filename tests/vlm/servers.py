"""Loopback servers in the providers' own wire formats, with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stillme.core.types import ImageFile
from tests.editors.hosted.loopback import Asked, Loopback, Says
from tests.pictures import noise


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """What a model would see of a request, independent of its wire format."""

    system: str
    text: str
    images: list[str]
    """Base64, in order."""


Script = Callable[[ModelInput], str]


@dataclass(frozen=True, kw_only=True)
class WireFormat:
    """One provider's wire format: how to read its requests and write every kind of response."""

    provider: str
    model: str
    path: str
    base: str = ""
    parse: Callable[[Any], ModelInput]
    answer: Callable[[str], Any]
    refusal: Callable[[str], Says]
    blocks: Callable[[], list[Says]]
    truncated: Callable[[str], Says]

    def handler(self, script: Script) -> Callable[[Loopback, Asked], Says]:
        return lambda server, asked: Says(body=self.answer(script(self.parse(asked.json))))

    def settings(self, url: str, **more: Any) -> dict[str, Any]:
        return {"provider": self.provider, "model": self.model, "base_url": url + self.base, "timeout": 60, **more}


def _seen(system: str, entries: Sequence[Any], parts_of: str, image: Callable[[Any], str | None]) -> ModelInput:
    parts = [part for entry in entries for part in entry[parts_of]]
    images = [data for part in parts if (data := image(part))]
    return ModelInput(system=system, text="\n".join(part["text"] for part in parts if "text" in part), images=images)


# -- OpenAI Responses -------------------------------------------------------------------------------------------------


def _responses(content: Mapping[str, Any] | None, **more: Any) -> Any:
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}
    usage = {
        "input_tokens": 3000,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 600,
        "output_tokens_details": {"reasoning_tokens": 200},
        "total_tokens": 3600,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1763251200,
        "status": "completed",
        "model": "gpt-5-mini-2025-08-07",
        "output": [message] if content else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
        **more,
    }


def _error(status: int, code: str, words: str) -> Says:
    return Says(status=status, body={"error": {"message": words, "type": "invalid_request_error", "code": code}})


RESPONSES = WireFormat(
    provider="openai",
    model="gpt-5-mini-2025-08-07",
    path="/v1/responses",
    base="/v1",
    parse=lambda body: _seen(
        body["instructions"], body["input"], "content", lambda part: part.get("image_url", "").partition(",")[2]
    ),
    answer=lambda text: _responses({"type": "output_text", "text": text, "annotations": []}),
    refusal=lambda words: Says(body=_responses({"type": "refusal", "refusal": words})),
    blocks=lambda: [
        _error(400, "invalid_prompt", "Your request was flagged as potentially violating our usage policy."),
        Says(body=_responses(None, status="incomplete", incomplete_details={"reason": "content_filter"})),
    ],
    truncated=lambda text: Says(
        body=_responses(
            {"type": "output_text", "text": text, "annotations": []},
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        )
    ),
)

# -- OpenAI chat, for vLLM, SGLang, Ollama and llama.cpp ----------------------------------------------------------


def _chat(message: Mapping[str, Any], finish: str = "stop") -> Any:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1763251200,
        "model": "Qwen/Qwen3-VL-8B-Instruct",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}
        ],
        "usage": {"prompt_tokens": 3000, "completion_tokens": 600, "total_tokens": 3600},
    }


CHAT = WireFormat(
    provider="openai-chat",
    model="Qwen/Qwen3-VL-8B-Instruct",
    path="/v1/chat/completions",
    base="/v1",
    parse=lambda body: _seen(
        "\n".join(entry["content"] for entry in body["messages"] if entry["role"] == "system"),
        [entry for entry in body["messages"] if entry["role"] == "user"],
        "content",
        lambda part: part.get("image_url", {}).get("url", "").partition(",")[2],
    ),
    answer=lambda text: _chat({"content": text}),
    refusal=lambda words: Says(body=_chat({"refusal": words})),
    blocks=lambda: [Says(body=_chat({}, finish="content_filter"))],
    truncated=lambda text: Says(body=_chat({"content": text}, finish="length")),
)

# -- Gemini -----------------------------------------------------------------------------------------------------------


def _gemini(text: str | None, finish: str = "STOP", **more: Any) -> Any:
    content = {"content": {"role": "model", "parts": [{"text": text}]}} if text is not None else {}
    usage = {
        "promptTokenCount": 3000,
        "candidatesTokenCount": 400,
        "thoughtsTokenCount": 200,
        "totalTokenCount": 3600,
    }
    return {
        "candidates": [{"index": 0, "finishReason": finish, **content}],
        "usageMetadata": usage,
        "modelVersion": "gemini-3-flash-preview",
        "responseId": "r1",
        **more,
    }


def _blocked_prompt() -> Says:
    usage = {"promptTokenCount": 3000, "totalTokenCount": 3000}
    feedback = {"blockReason": "PROHIBITED_CONTENT"}
    body = {"promptFeedback": feedback, "usageMetadata": usage, "modelVersion": "gemini-3-flash-preview"}
    return Says(body=body)


GEMINI = WireFormat(
    provider="google",
    model="gemini-3-flash-preview",
    path=":generateContent",
    parse=lambda body: _seen(
        "\n".join(part["text"] for part in body["systemInstruction"]["parts"]),
        body["contents"],
        "parts",
        lambda part: part.get("inlineData", {}).get("data"),
    ),
    answer=_gemini,
    # Gemini has no refusals, only blocks.
    refusal=lambda words: Says(body=_gemini(None, finish="SAFETY")),
    blocks=lambda: [_blocked_prompt(), Says(body=_gemini(None, finish="PROHIBITED_CONTENT"))],
    truncated=lambda text: Says(body=_gemini(text, finish="MAX_TOKENS")),
)

# -- Anthropic --------------------------------------------------------------------------------------------------------


def _anthropic(text: str | None, stop: str = "end_turn", **more: Any) -> Any:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [{"type": "text", "text": text}] if text is not None else [],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 3000, "output_tokens": 600},
        **more,
    }


ANTHROPIC = WireFormat(
    provider="anthropic",
    model="claude-sonnet-5-5",
    path="/v1/messages",
    parse=lambda body: _seen(
        "\n".join(part["text"] for part in body["system"]),
        body["messages"],
        "content",
        lambda part: part.get("source", {}).get("data"),
    ),
    answer=_anthropic,
    refusal=lambda words: Says(
        body=_anthropic(None, stop="refusal", stop_details={"type": "refusal", "category": None, "explanation": words})
    ),
    blocks=list,
    truncated=lambda text: Says(body=_anthropic(text, stop="max_tokens")),
)

WIRE_FORMATS = (RESPONSES, CHAT, GEMINI, ANTHROPIC)


KEY = "sk-loopback-0123456789"


def set_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that open nothing."""
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)


def write_images(folder: Path, *widths: int) -> list[ImageFile]:
    """Noise of these widths."""
    return [noise(folder / f"Black_woman_{place}.png", width, 40, seed=place) for place, width in enumerate(widths)]


@dataclass
class Scripted:
    """Answers in turn; the last one is repeated."""

    answers: list[Any] = field(default_factory=list)

    def __call__(self, _: ModelInput) -> str:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, str) else json.dumps(answer)
