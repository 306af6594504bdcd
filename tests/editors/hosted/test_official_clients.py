"""The loopback servers speak the real protocols: the providers' own clients understand them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stillme.core.types import Portrait
from tests.editors.hosted.conftest import KEY
from tests.editors.hosted.loopback import Asked, Loopback, Says, serving
from tests.editors.hosted.providers import fal, from_data_uri, negative, replicate


@pytest.fixture
def picture(people: list[Portrait]) -> str:
    from stillme.core.images.sending import encode_for_upload

    return encode_for_upload(people[0].image.path).data_uri


@pytest.fixture
def fal_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    client = pytest.importorskip("fal_client.client")

    def behave(server: Loopback, asked: Asked) -> Says:
        says = fal(server, asked)
        if asked.method == "POST":
            here = {name: str(value).replace("https://queue.fal.run", server.url) for name, value in says.body.items()}
            return Says(body=here)
        return says

    with serving(behave) as server:
        monkeypatch.setattr(client, "QUEUE_URL_FORMAT", f"{server.url}/")
        monkeypatch.setattr(client, "BASE_DELAY", 0.001)
        yield server


def test_fals_client_edits_at_our_server(fal_server: Loopback, picture: str):
    import fal_client

    client = fal_client.SyncClient(key=KEY)
    result = client.subscribe("fal-ai/flux-2-pro/edit", {"prompt": "x", "image_urls": [picture]})
    client._client.close()
    assert from_data_uri(result["images"][0]["url"]) == negative(from_data_uri(picture))


def test_replicates_client_edits_at_our_server(picture: str):
    client = pytest.importorskip("replicate")
    with serving(local(replicate)) as server:
        ours = client.Client(api_token=KEY, base_url=server.url)
        (link,) = ours.run("black-forest-labs/flux-2-pro", {"prompt": "x", "input_images": [picture]})
        assert link == f"{server.url}/picture.png"
        ours._client.close()


def local(behave: Callable[[Loopback, Asked], Says]) -> Callable[[Loopback, Asked], Says]:
    """With links that lead back here instead of to the provider."""

    def answer(server: Loopback, asked: Asked) -> Says:
        says = behave(server, asked)
        if isinstance(says.body, dict) and "urls" in says.body:
            here = {
                name: link.replace("https://api.replicate.com", server.url) for name, link in says.body["urls"].items()
            }
            return Says(body={**says.body, "urls": here}, status=says.status)
        return says

    return answer
