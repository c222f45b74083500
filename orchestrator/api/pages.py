"""The built page: index.html at `/`, and the assets beside it."""

from importlib.resources import files
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOR_EVER = "public, max-age=31536000, immutable"


def routes() -> list[BaseRoute]:
    """Where it is found; a message instead while it is not built."""
    folder = Path(str(files("orchestrator"))) / "static"
    if (folder / "index.html").is_file():
        return [Mount("/", Pages(directory=folder, html=True))]
    return [Route("/", _not_built, methods=["GET"])]


class Pages(StaticFiles):
    """Files under `assets/` have their content's hash in the name and are kept for ever; others are asked for again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, with how long it may be kept."""
        response = await super().get_response(path, scope)
        is_asset = path.startswith("assets/") and response.status_code < 400
        response.headers["Cache-Control"] = FOR_EVER if is_asset else "no-cache"
        return response


async def _not_built(_: Request) -> Response:
    raise HTTPException(404, "The page is not built; `make page` builds it. The API is at /v1.")
