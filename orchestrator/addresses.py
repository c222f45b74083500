"""Which addresses the service may call on behalf of others: the one guard against server-side request forgery."""

import asyncio
import errno
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

import msgspec

from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings

FIELD = "webhook_url"
REGISTRATION_TIMEOUT_S = 5.0
MAX_URL_CHARS = 2000
MAX_LOOKUPS = 128  # twice the deliveries in flight: a look-up that outlives its deadline still holds its thread

# Source: the IANA registries of special-purpose addresses. `ipaddress.is_global` is no guard: on Python 3.11 it is true
# for 64:ff9b::a9fe:a9fe, ::ffff:100.64.0.1, 2002:a9fe:a9fe::, fec0::1, 192.88.99.1 and 224.0.0.1.
REFUSED_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local: cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Everything outside is refused: loopback, link-local, unique local, multicast, and each form that embeds an IPv4
# address (mapped, compatible, NAT64), whatever address that is.
GLOBAL_V6 = IPv6Network("2000::/3")
REFUSED_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: embeds an IPv4 address
        "3fff::/20",  # documentation
    )
)

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][a-z0-9._~%!$&'()*+,;=:@/?-]*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_NOT_PUBLIC = "must lead to public addresses only"

Network = IPv4Network | IPv6Network
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


class Endpoint(msgspec.Struct, frozen=True):
    """A checked URL, taken apart once: what was checked is what is called, there is no second parser to disagree."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def is_secure(self) -> bool:
        """Whether the call goes over TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(self.scheme) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """What logs may show: path and query often are secrets."""
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True)
class AddressPolicy:
    """What may be called: public addresses, and the networks the operator allows.

    `lookup` turns a name into all its addresses; tests bring their own.
    """

    allow_http: bool = False
    allowed: tuple[Network, ...] = ()
    lookup: Lookup = field(default_factory=lambda: look_up)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """The operator's policy. Raises `InvalidOption` for a network that is none."""
        try:
            allowed = tuple(ip_network(text) for text in settings.webhook_allow_networks)
        except ValueError as problem:
            raise InvalidOption("webhook_allow_networks", str(problem)) from None
        return cls(allow_http=settings.webhook_allow_http, allowed=allowed)

    def allows(self, address: str) -> bool:
        """Whether `address` may be called; what is no address may not."""
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self.allowed) or is_public(ip)


def is_public(ip: IPv4Address | IPv6Address) -> bool:
    """Whether the address belongs to the public internet."""
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in REFUSED_V4)
    return ip in GLOBAL_V6 and not any(ip in network for network in REFUSED_V6)


def check_url(url: str, policy: AddressPolicy, field: str = FIELD) -> Endpoint:
    """Take the URL apart, or raise `InvalidOption`. Asks no name server: see `check_registration` and `resolve`.

    Hosts are names in plain ASCII (`xn--…` where needed), dotted quads or bracketed IPv6. The other spellings of an
    address that C libraries take (127.1, 0x7f.1, 2130706433, 0177.0.0.1) are refused, as are user names and fragments.
    """
    match = _URL.fullmatch(url) if len(url) <= MAX_URL_CHARS else None
    if match is None:
        raise InvalidOption(field, "must be a URL in plain ASCII, https://host[:port][/path], without user or fragment")
    scheme = match["scheme"].lower()
    if scheme == "http" and not policy.allow_http:
        raise InvalidOption(field, "must begin with https://")
    host = _check_host(match["host"].lower(), policy, field)
    port = int(match["port"] or _default_port(scheme))
    if port not in (80, 443) and not 1024 <= port <= 65535:
        raise InvalidOption(field, "must use port 80, 443, or one from 1024 to 65535")
    target = match["target"] or "/"
    return Endpoint(scheme, host, port, target if target.startswith("/") else "/" + target)


async def check_registration(url: str, policy: AddressPolicy, field: str = FIELD) -> Endpoint:
    """`check_url`, and the name's addresses as they are now. Raises `InvalidOption`, the same for a name that does not
    exist as for one that leads inside, so that nobody maps our network with it."""
    endpoint = check_url(url, policy, field)
    try:
        async with asyncio.timeout(REGISTRATION_TIMEOUT_S):
            await resolve(endpoint.host, endpoint.port, policy, field)
    except OSError:  # also TimeoutError: a failed look-up is no permission
        raise InvalidOption(field, _NOT_PUBLIC) from None
    return endpoint


async def resolve(host: str, port: int, policy: AddressPolicy, field: str = FIELD) -> list[str]:
    """All addresses of `host`, each of them allowed: connect to these and to nothing else.

    Raises `InvalidOption` if a single one is not allowed (final), `OSError` if the look-up fails (worth a retry).
    """
    addresses = [host] if _is_address(host) else list(dict.fromkeys(await policy.lookup(host, port)))
    if not addresses:
        raise OSError(errno.EADDRNOTAVAIL, "the name has no address")
    if not all(policy.allows(address) for address in addresses):
        raise InvalidOption(field, _NOT_PUBLIC)
    return addresses


async def look_up(host: str, port: int) -> list[str]:
    """Ask the system's resolver for all addresses of a name. Raises `OSError`.

    Each look-up has its own daemon thread: `getaddrinfo` cannot be interrupted, so in a shared pool a few slow name
    servers would starve everybody, and at exit the interpreter would wait for them.
    """
    if not _lookups.acquire(blocking=False):
        raise OSError(errno.EAGAIN, "too many name look-ups at once")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str] | Exception) -> None:
        if answer.done():  # nobody waits any more
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def work() -> None:
        found: list[str] | Exception
        try:
            records = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
            found = [str(record[4][0]) for record in records]
        except Exception as problem:
            found = problem
        finally:
            _lookups.release()
        try:
            loop.call_soon_threadsafe(settle, found)
        except RuntimeError:  # the loop ended before the name server answered
            return

    threading.Thread(target=work, name=f"look-up {host}", daemon=True).start()
    return await answer


_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)


def _check_host(host: str, policy: AddressPolicy, field: str) -> str:
    literal = host.strip("[]")
    if host.startswith("[") and ":" not in host:
        raise InvalidOption(field, "has no valid host name")
    if host.startswith("[") or _NUMBER.fullmatch(host.rpartition(".")[2]):
        # As in WHATWG's URL standard, a host whose last part is a number is an address, in whatever spelling; unlike
        # there, only the canonical one is taken.
        if not policy.allows(literal):
            raise InvalidOption(field, _NOT_PUBLIC)
        return literal
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise InvalidOption(field, "has no valid host name")
    return host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80
