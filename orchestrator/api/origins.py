"""Where requests may come from, as long as they carry no key: not from the pages of other sites."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api.problems import plain_problem, problem_response
from orchestrator.settings import Settings

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class TrustedOrigins:
    """Refuses what a page of another site makes a browser send.

    A request that changes something must come from a page of ours, or from no page at all (403). And a service that
    listens on the loopback only is asked for by a loopback name (421): any other `Host` is a name that somebody
    pointed at 127.0.0.1, so that his page may read ours as its own ("DNS rebinding"). Behind a proxy, set `public_url`.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        public = urlsplit(settings.public_url)
        self.app = app
        self.public_host = public.netloc.lower()
        self.names = {*LOOPBACK, public.hostname} if settings.host in LOOPBACK else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "").lower()
            if self.names is not None and not _is_one_of(host, self.names):
                detail = "The service does not answer under this host name; see KARGAH_PUBLIC_URL."
                await problem_response(plain_problem(421, detail))(scope, receive, send)
                return
            if scope["method"] not in SAFE_METHODS and _is_foreign(headers, {host, self.public_host}):
                detail = "Requests that change something are not taken from pages of other sites."
                await problem_response(plain_problem(403, detail))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _is_one_of(host: str, names: Collection[str | None]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in names or name.endswith(".localhost")


def _is_foreign(headers: Headers, own: Collection[str]) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        site = origin.lower().partition("://")[2]
        return not site or site not in own  # "null" is the origin of sandboxed frames and local files
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
