"""The presets as judge classes, for the entry points."""

from __future__ import annotations

from stillme.judges.model import preset_judge

Gemini3Flash = preset_judge("Gemini3Flash", "gemini-3-flash")
Gpt5Mini = preset_judge("Gpt5Mini", "gpt-5-mini")
Claude = preset_judge("Claude", "claude")
OpenAICompatible = preset_judge("OpenAICompatible", "openai-compatible")
