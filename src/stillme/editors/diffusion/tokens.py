"""Count the tokens of a prompt as its pipeline does, to find truncation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from stillme.core.types import Prompt
from stillme.editors.diffusion.traits import Tokens
from stillme.editors.diffusion.weights import Weights

Count = Callable[[str], int]


def counter(tokens: Tokens, tokenizer: Any) -> Count:
    """How many tokens of the limit a prompt takes, template included."""
    match tokens.counted:
        case "plain":
            return lambda text: len(tokenizer(text, verbose=False)["input_ids"])
        case "bare":
            return lambda text: len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        case "chat_text":
            return lambda text: len(tokenizer(_as_text(tokenizer, text), verbose=False)["input_ids"])
        case "chat":
            return lambda text: _in_chat(tokenizer, tokens, text)


def too_long(prompts: Sequence[Prompt], tokens: Tokens, limit: int, weights: Weights, *, editor: str) -> Iterator[str]:
    """Prompts that would be truncated, as far as known without a download."""
    # No token is shorter than a byte, so most prompts need no tokenizer.
    long = [prompt for prompt in prompts if len(prompt.text.encode()) + tokens.overhead > limit]
    tokenizer = _tokenizer(tokens, weights) if long else None
    if tokenizer is None:
        return
    count = counter(tokens, tokenizer)
    for prompt in long:
        length = count(prompt.text)
        if length > limit:
            alternative = f", or raise `{tokens.argument}`" if tokens.argument else ""
            yield f"the prompt {prompt.id!r} has {length} tokens and {editor} reads {limit}; shorten it{alternative}"


def _tokenizer(tokens: Tokens, weights: Weights) -> Any:
    named = weights.index().get(tokens.component)
    folder = weights.local(tokens.component)
    if not named or folder is None:
        return None
    library, kind = named
    try:
        return getattr(import_module(library), kind).from_pretrained(folder)
    except (ImportError, RuntimeError):  # not installed or not usable: the edit itself reports it
        return None


def _as_text(tokenizer: Any, text: str) -> str:
    messages = [{"role": "user", "content": text}]
    rendered: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return rendered


def _in_chat(tokenizer: Any, tokens: Tokens, text: str) -> int:
    module, _, name = tokens.system.partition(":")
    system = [("system", getattr(import_module(module), name))] if module else []
    turns = [*system, ("user", text)]
    messages = [{"role": role, "content": [{"type": "text", "text": content}]} for role, content in turns]
    rendered = tokenizer.apply_chat_template(
        [messages], add_generation_prompt=False, tokenize=True, return_dict=True, padding=False
    )
    return len(rendered["input_ids"][0])
