"""The application as a whole: headers on everything, foreign pages, the page itself, and Redis away."""

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from orchestrator.api.app import create_app
from orchestrator.settings import Settings
from tests.conftest import wait_until
from tests.orchestrator.api.test_generations import CIRCLE, create
from tests.servers import Server


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/generations", 200),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/generations/", 404),
        ("PUT", "/v1/generations", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/generations", 415),
        ("GET", "/nothing", 404),
    ],
)
async def test_every_answer_is_safe_to_show(api: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    response = await api.request(method, path)
    assert response.status_code == status
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    for part in ("default-src 'self'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    if status >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["status"] == status
    if status == 405:
        assert response.headers["allow"]


async def test_a_fault_of_ours_tells_nothing_of_the_inside(
    app: Starlette, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise ValueError("redis://user:secret@10.0.0.1")

    monkeypatch.setattr(app.state.context.queue, "get_counts", broken)
    response = await api.get("/readyz")
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"Origin": "http://localhost"}, 202),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "http://localhost:8001"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_pages_of_other_sites_change_nothing(
    api: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    response = await api.post("/v1/generations", json=CIRCLE, headers=headers)
    assert response.status_code == status
    assert len((await api.get("/v1/generations", headers=headers)).json()["data"]) == (1 if status == 202 else 0)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("kargah.localhost:1234", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
async def test_a_service_on_the_loopback_answers_to_loopback_names(
    api: httpx.AsyncClient, host: str, status: int
) -> None:
    assert (await api.get("/healthz", headers={"Host": host})).status_code == status


async def test_a_public_url_is_a_name_of_the_service(tmp_path: Path, url: str, queue_name: str) -> None:
    settings = Settings(redis_url=url, queue=queue_name, data_dir=tmp_path, public_url="https://pictures.example")
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        headers = {"Origin": "https://pictures.example"}
        async with httpx.AsyncClient(transport=transport, base_url="http://pictures.example", headers=headers) as api:
            await create(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as api:
            await create(api)  # the proxy named us by our address


async def test_a_service_for_everybody_answers_to_any_name(tmp_path: Path, url: str, queue_name: str) -> None:
    app = create_app(Settings(redis_url=url, queue=queue_name, data_dir=tmp_path, host="0.0.0.0"))
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://box.lan") as api:
            assert (await api.get("/healthz")).status_code == 200


async def test_the_page_is_served_beside_the_api(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<h1>Kargah</h1>")
    (static / "assets" / "app-1234.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr("orchestrator.api.pages.files", lambda _: tmp_path)
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
            page = await api.get("/")
            assert (page.status_code, page.text) == (200, "<h1>Kargah</h1>")
            assert page.headers["cache-control"] == "no-cache"
            asset = await api.get("/assets/app-1234.js")
            assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
            again = await api.get("/", headers={"If-None-Match": page.headers["etag"]})
            assert again.status_code == 304
            for path in ("/assets/gone.js", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/x%00"):
                missing = await api.get(path)
                assert missing.status_code == 404
                assert missing.headers["content-type"] == "application/problem+json"
            assert (await api.post("/")).status_code == 405


async def test_without_a_page_the_root_says_how_to_get_one(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.pages.files", lambda _: tmp_path)
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
            response = await api.get("/")
            assert response.status_code == 404
            assert "make page" in response.json()["detail"]


async def test_redis_away_is_told_within_a_second_and_its_return_is_noticed(
    runtime_folder: Path, settings: Settings, queue_name: str
) -> None:
    folder = runtime_folder / queue_name[-6:]
    redis = Server("valkey", folder)
    app = create_app(Settings(redis_url=redis.url, queue=queue_name, data_dir=settings.data_dir))
    loop = asyncio.get_running_loop()
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:

            async def is_refused() -> None:
                calls = [
                    ("GET", "/readyz"),
                    ("POST", "/v1/generations"),
                    ("GET", "/v1/generations"),
                    ("GET", "/v1/generations/a"),
                    ("GET", "/v1/generations/a/images/0"),
                    ("GET", "/v1/generations/a/preview"),
                    ("POST", "/v1/generations/a/cancel"),
                    ("DELETE", "/v1/generations/a"),
                    ("GET", "/v1/events"),
                ]
                for method, path in calls:
                    begin = loop.time()
                    response = await api.request(method, path, json=CIRCLE if path == "/v1/generations" else None)
                    assert loop.time() - begin < 1.5  # the deadline is 0.8; the rest is for a busy machine
                    assert response.status_code == 503
                    assert response.headers["retry-after"]
                    assert response.headers["content-type"] == "application/problem+json"
                    assert redis.url.removeprefix("unix://") not in response.text
                assert (await api.get("/healthz")).status_code == 200
                assert (await api.get("/v1/models")).status_code == 200

            async def is_ready() -> bool:
                return (await api.get("/readyz")).status_code == 200

            await is_refused()  # before its first start
            redis.start()
            await wait_until(is_ready)
            await create(api)
            redis.stop()
            await is_refused()
            redis.start()
            await wait_until(is_ready)
            await create(api)
            redis.stop()


async def test_a_full_redis_is_unavailable_and_recovers(
    runtime_folder: Path, settings: Settings, queue_name: str
) -> None:
    folder = runtime_folder / queue_name[-6:]
    redis = Server("valkey", folder)
    redis.start()
    app = create_app(Settings(redis_url=redis.url, queue=queue_name, data_dir=settings.data_dir))
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
            resource = await create(api)
            client = app.state.context.queue.client
            await client.config_set("maxmemory", 1)
            full = await api.post("/v1/generations", json=CIRCLE)
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")
            assert (await api.get(resource["urls"]["self"])).status_code == 200
            assert (await api.post(resource["urls"]["cancel"])).status_code == 202
            await client.config_set("maxmemory", 0)
            await create(api)
    redis.stop()


async def test_a_full_queue_says_when_to_come_back(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.scripts.adding.OUTBOX_MAX", 0)
    response = await api.post("/v1/generations", json=CIRCLE)
    assert (response.status_code, response.headers["retry-after"]) == (429, "5")
    assert response.json()["type"] == "urn:kargah:problem:queue-full"


async def test_a_burst_beyond_the_pool_is_served_or_told_to_come_back(api: httpx.AsyncClient) -> None:
    responses = await asyncio.gather(*(api.post("/v1/generations", json=CIRCLE) for _ in range(200)))
    for response in responses:
        assert response.status_code == 202 or (response.status_code == 503 and response.headers["retry-after"])
    accepted = {response.json()["id"] for response in responses if response.status_code == 202}
    assert accepted
    for job_id in sorted(accepted)[:20]:
        assert (await api.get(f"/v1/generations/{job_id}")).json()["id"] == job_id
