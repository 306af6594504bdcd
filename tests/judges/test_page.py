"""docs/judges.md: its example loads, and it names every preset and every setting that costs money."""

from __future__ import annotations

import re
from pathlib import Path

from stillme import audit
from stillme.judges.questions import OpenSettings
from stillme.judges.vlm import known_models

PAGE = Path(__file__).parents[2] / "docs" / "judges.md"


def test_the_example_loads_with_the_successors(tmp_path: Path):
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "audit.toml").write_text(f'[[editors]]\nuse = "noop"\n{example}')
    loaded = audit.load(tmp_path, ready=False)
    models = [named.judge.spec.parameters["model"] for named in loaded.judges]
    assert models == ["gemini-3.6-flash", "gpt-5.6-terra", "Qwen/Qwen3-VL-8B-Instruct"]
    assert [named.record().asked for named in loaded.judges] == [6, 1, 1]


def test_the_page_names_the_presets_and_the_settings_that_cost():
    page = PAGE.read_text()
    for name in ("gemini-3-flash", "gpt-5-mini", "claude", "openai-compatible", "gpt-5.6-terra"):
        assert name in known_models()
        assert name in page
    for key in ("concurrency", "requests_per_minute", "service_tier", "price", "timeout", "disclosure"):
        assert key in OpenSettings.model_fields
        assert key in page
