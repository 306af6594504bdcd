"""Encode prompts with a service, so that the text encoder needs no memory here."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT = 120.0
"""Seconds for one whole answer."""
_BLOCK = 1 << 16
_HUB = "huggingface.co"
_REMEMBERED = 32
"""Encoded prompts that are kept: the same prompts come again with every portrait."""


class EncodingFailed(Exception):
    """The service did not encode a prompt."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the token along to any host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class RemoteTextEncoder:
    """A service that takes `{"prompt": "…"}` and answers with a saved tensor."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._encoded: OrderedDict[str, Any] = OrderedDict()

    def encode(self, prompts: list[str], dtype: Any) -> Any:
        """The prompts' embeddings, one row each, on the CPU."""
        torch: Any = import_module("torch")
        return torch.cat([self._one(prompt) for prompt in prompts], dim=0).to(dtype)

    def _one(self, prompt: str) -> Any:
        if prompt not in self._encoded:
            self._encoded[prompt] = self._asked(prompt)
        self._encoded.move_to_end(prompt)
        while len(self._encoded) > _REMEMBERED:
            self._encoded.popitem(last=False)
        return self._encoded[prompt]

    def _asked(self, prompt: str) -> Any:
        torch: Any = import_module("torch")
        token = import_module("huggingface_hub").get_token() if is_of_the_hub(self._url) else None
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(self._url, json.dumps({"prompt": prompt}).encode(), headers)
        try:
            data = _answer(request)
        except urllib.error.HTTPError as error:
            error.close()
            raise EncodingFailed(f"{self._url} answers HTTP {error.code}", status=error.code) from None
        except OSError as error:
            raise EncodingFailed(f"{self._url} cannot be reached ({error})") from None
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception as error:
            raise EncodingFailed(f"{self._url} answers with no tensor ({type(error).__name__})") from None


def is_of_the_hub(url: str) -> bool:
    """Whether the hub's token may be sent there."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" and (host == _HUB or host.endswith(f".{_HUB}"))


def _answer(request: urllib.request.Request) -> bytes:
    end, data = time.monotonic() + _TIMEOUT, bytearray()
    with urllib.request.build_opener(_NoRedirects()).open(request, timeout=_TIMEOUT) as response:
        while block := response.read1(_BLOCK):
            data += block
            # The time-out above is per read.
            if time.monotonic() > end:
                raise TimeoutError(f"no complete answer within {_TIMEOUT:g} s")
    return bytes(data)
