"""Keys and tokens are replaced before anything is stored."""

from __future__ import annotations

import pytest

from stillme.core.redaction import redacted, without_secrets


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "my_secret", "AWS_SECRET_ACCESS_KEY"])
def test_values_of_variables_that_are_named_like_secrets_are_replaced(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "s3cr3t-value")
    assert redacted("rejected: s3cr3t-value!") == "rejected: …!"


@pytest.mark.parametrize(("name", "value"), [("KEYBOARD", "qwertz-layout"), ("MY_KEY", "yes")])
def test_ordinary_words_are_kept(name: str, value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, value)
    assert redacted(f"it says {value}") == f"it says {value}"


def test_tokens_and_signed_links_are_replaced_wherever_they_come_from():
    assert redacted("Authorization: Bearer abc.def-123456") == "Authorization: Bearer …"
    link = "https://x.example/a.png?w=5&X-Amz-Signature=abcdef123&sig=9"
    assert redacted(link) == "https://x.example/a.png?…"
    assert redacted("https://me:pass@host/v1") == "https://…@host/v1"


def test_given_values_are_replaced_the_longest_first():
    assert redacted("abcd abcdef", "abcd", "abcdef") == "… …"
    key = "hf_sk-loopback-0123456789"
    assert redacted(f"Incorrect key {key[:12]}***", key) == "Incorrect key …***", "as providers repeat it"
    nested = {"a": [f"x {key}", 3], "b": {"c": key}, "d": None}
    assert without_secrets(nested, key) == {"a": ["x …", 3], "b": {"c": "…"}, "d": None}
