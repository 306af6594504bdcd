"""The presets as classes, for the entry points."""

from __future__ import annotations

from stillme.judges.model import named

Gemini3Flash = named("Gemini3Flash", "gemini-3-flash")
Gpt5Mini = named("Gpt5Mini", "gpt-5-mini")
Claude = named("Claude", "claude")
OpenAICompatible = named("OpenAICompatible", "openai-compatible")
