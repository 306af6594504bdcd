"""The loopback servers speak the real protocols: the providers' own clients understand them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stillme.core.images.sending import encode_for_upload
from stillme.core.types import Portrait
from tests.editors.hosted.conftest import KEY
from tests.editors.hosted.loopback import Asked, Loopback, Says
from tests.editors.hosted.providers import fal, from_data_uri, negative, replicate


@pytest.fixture
def picture(people: list[Portrait]) -> str:
    return encode_for_upload(people[0].image.path).data_uri


def local(behave: Callable[[Loopback, Asked], Says]) -> Callable[[Loopback, Asked], Says]:
    """With links that lead back here instead of to the provider."""

    def answer(server: Loopback, asked: Asked) -> Says:
        says = behave(server, asked)
        if isinstance(says.body, bytes):
            return says
        body = json.dumps(says.body)
        for host in ("https://queue.fal.run", "https://api.replicate.com"):
            body = body.replace(host, server.url)
        return Says(body=json.loads(body), status=says.status)

    return answer


def test_fals_client_edits_at_our_server(
    loopback: Callable[..., Loopback], picture: str, monkeypatch: pytest.MonkeyPatch
):
    fal_client = pytest.importorskip("fal_client.client")
    monkeypatch.setattr(fal_client, "QUEUE_URL_FORMAT", f"{loopback(local(fal)).url}/")
    monkeypatch.setattr(fal_client, "BASE_DELAY", 0.001)
    client = fal_client.SyncClient(key=KEY)
    result = client.subscribe("fal-ai/flux-2-pro/edit", {"prompt": "x", "image_urls": [picture]})
    client._client.close()
    assert from_data_uri(result["images"][0]["url"]) == negative(from_data_uri(picture))


def test_replicates_client_edits_at_our_server(loopback: Callable[..., Loopback], picture: str):
    server = loopback(local(replicate))
    client = pytest.importorskip("replicate").Client(api_token=KEY, base_url=server.url)
    (link,) = client.run("black-forest-labs/flux-2-pro", {"prompt": "x", "input_images": [picture]})
    client._client.close()
    assert link == f"{server.url}/picture.png"
