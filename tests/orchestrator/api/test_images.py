"""Pictures over HTTP: cached for ever, of fixed types, and only those of the job's own result."""

import httpx
import msgspec
import pytest

from orchestrator.api.context import Context
from orchestrator.generation import GenerationResult, Image
from orchestrator.queue import Queue
from tests.orchestrator.api.hand import PNG, Hand
from tests.orchestrator.api.test_generations import create


async def test_finished_pictures_are_served_and_kept_for_ever(
    api: httpx.AsyncClient, context: Context, queue: Queue
) -> None:
    resource = await create(api, num_images=2)
    await (await Hand.claim(queue)).complete(context.storage, images=2)
    done = (await api.get(resource["urls"]["self"])).json()
    assert done["timings"] == {"load_ms": 1, "denoise_ms": 2, "decode_ms": 3}
    for index, image in enumerate(done["images"]):
        response = await api.get(image["url"])
        assert response.status_code == 200
        assert response.content == PNG + bytes([index])
        assert len(response.content) == image["bytes"] == int(response.headers["content-length"])
        assert response.headers["content-type"] == image["content_type"] == "image/png"
        assert response.headers["cache-control"] == "private, no-cache"
        assert response.headers["content-disposition"] == f'inline; filename="{resource["id"]}-{index}.png"'
        assert response.headers["x-content-type-options"] == "nosniff"
    etags = {(await api.get(image["url"])).headers["etag"] for image in done["images"]}
    assert len(etags) == 2


@pytest.mark.parametrize("given", ["{}", "W/{}", '"other", {}', "*"])
async def test_a_picture_the_client_has_is_not_sent_again(
    api: httpx.AsyncClient, context: Context, queue: Queue, given: str
) -> None:
    resource = await create(api)
    await (await Hand.claim(queue)).complete(context.storage)
    url = f"{resource['urls']['self']}/images/0"
    etag = (await api.get(url)).headers["etag"]
    response = await api.get(url, headers={"If-None-Match": given.format(etag)})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == etag


async def test_head_tells_the_size_without_the_picture(api: httpx.AsyncClient, context: Context, queue: Queue) -> None:
    resource = await create(api)
    await (await Hand.claim(queue)).complete(context.storage)
    response = await api.head(f"{resource['urls']['self']}/images/0")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(PNG) + 1)


async def test_pictures_that_are_not_there_are_told_apart(
    api: httpx.AsyncClient, context: Context, queue: Queue
) -> None:
    resource = await create(api)
    url = f"{resource['urls']['self']}/images"
    waiting = await api.get(f"{url}/0")
    assert (waiting.status_code, waiting.json()["type"]) == (404, "urn:kargah:problem:file-missing")
    assert "waiting" in waiting.json()["detail"]
    await (await Hand.claim(queue)).complete(context.storage)
    for index in ("1", "-1", "x", "0.png", "99999999999999999999", "%2e%2e"):
        assert (await api.get(f"{url}/{index}")).status_code == 404
    await context.storage.remove_tree(resource["id"])
    missing = await api.get(f"{url}/0")
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:kargah:problem:file-missing")
    assert missing.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["{other}/1-x/0.png", "../../etc/passwd", "/etc/passwd", "{own}/../{other}/0.png", "{own}/a\\b.png", ""]
)
async def test_only_files_of_the_job_itself_are_read(
    api: httpx.AsyncClient, context: Context, queue: Queue, path: str
) -> None:
    other, own = await create(api), await create(api)
    await context.storage.put(f"{other['id']}/1-x/0.png", PNG, "image/png")
    await Hand.claim(queue)
    named = path.format(other=other["id"], own=own["id"])
    result = GenerationResult(images=(Image(path=named, width=1, height=1, seed=1, bytes=1),))
    await (await Hand.claim(queue)).finish("completed", msgspec.json.encode(result))
    response = await api.get(f"{own['urls']['self']}/images/0")
    assert response.status_code in (404, 422)
    assert PNG not in response.content


@pytest.mark.parametrize("content_type", ["text/html", "image/svg+xml", "application/javascript"])
async def test_only_pictures_are_served(
    api: httpx.AsyncClient, context: Context, queue: Queue, content_type: str
) -> None:
    resource = await create(api)
    path = f"{resource['id']}/1-x/0.png"
    await context.storage.put(path, b"<script>alert(1)</script>", "image/png")
    image = Image(path=path, width=1, height=1, seed=1, bytes=1, content_type=content_type)
    await (await Hand.claim(queue)).finish("completed", msgspec.json.encode(GenerationResult(images=(image,))))
    assert (await api.get(f"{resource['urls']['self']}/images/0")).status_code == 404


async def test_there_is_no_preview_before_the_first(api: httpx.AsyncClient) -> None:
    resource = await create(api)
    assert (await api.get(f"{resource['urls']['self']}/preview")).status_code == 404
