import asyncio
import socket
import threading
from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from orchestrator import addresses
from orchestrator.addresses import AddressPolicy, Lookup, Network, check_registration, check_url, look_up, resolve
from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings
from tests.orchestrator.ssrf_vectors import FORBIDDEN_V4, FORBIDDEN_V6, PUBLIC, forbidden_hosts


def names(**table: Sequence[str]) -> Lookup:
    async def lookup(host: str, port: int) -> Sequence[str]:
        if host not in table:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return table[host]

    return lookup


async def permissive(host: str, port: int) -> Sequence[str]:
    """A C library's view of numeric hosts: what a literal check that falls through to the resolver would reach."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except UnicodeError as problem:
        raise OSError(str(problem)) from None
    return [str(record[4][0]) for record in found]


def test_there_are_at_least_400_forbidden_spellings() -> None:
    assert len(forbidden_hosts()) >= 400


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
async def test_no_spelling_of_a_forbidden_address_passes(scheme: str) -> None:
    policy = AddressPolicy(allow_http=True, lookup=permissive)
    passed = []
    for host in forbidden_hosts():
        try:
            await check_registration(f"{scheme}://{host}:8080/hook", policy)
        except InvalidOption:
            continue
        passed.append(host)
    assert passed == []


async def test_the_resolver_is_no_way_around_the_static_check() -> None:
    policy = AddressPolicy(lookup=permissive)
    for host in ("127.1", "2130706433", "0x7f.1", "0177.0.0.1", "017700000001", "１２７.0.0.1", "127。0。0。1"):
        with pytest.raises(InvalidOption):
            await resolve(host, 443, policy)


@pytest.mark.parametrize("address", [*FORBIDDEN_V4, *FORBIDDEN_V6, "", "localhost", "127.1", "fe80::1%eth0"])
def test_a_forbidden_address_is_not_allowed(address: str) -> None:
    assert not AddressPolicy().allows(address)


def test_first_and_last_address_of_each_refused_range_are_refused_and_the_neighbours_of_private_ones_are_not() -> None:
    policy = AddressPolicy()
    ranges: tuple[Network, ...] = (*addresses.REFUSED_V4, *addresses.REFUSED_V6)
    for network in ranges:
        assert not policy.allows(str(network[0]))
        assert not policy.allows(str(network[-1]))
    for neighbour in (
        "9.255.255.255",
        "11.0.0.0",
        "172.32.0.0",
        "2001:200::",
        "2001:db7:ffff::",
        "2001:db9::",
        "2003::",
    ):
        assert policy.allows(neighbour)


@pytest.mark.parametrize("host", PUBLIC)
async def test_a_public_address_passes(host: str) -> None:
    endpoint = await check_registration(f"https://{host}/hook", AddressPolicy(lookup=names()))
    assert endpoint.authority == host


async def test_a_public_name_passes_and_is_taken_apart() -> None:
    policy = AddressPolicy(lookup=names(**{"hooks.public.example": ["93.184.216.34", "2606:2800:220:1::1"]}))
    endpoint = await check_registration("https://Hooks.Public.Example:8443/in?key=a%20b", policy)
    assert (endpoint.scheme, endpoint.host, endpoint.port) == ("https", "hooks.public.example", 8443)
    assert (endpoint.target, endpoint.authority) == ("/in?key=a%20b", "hooks.public.example:8443")
    assert endpoint.origin == "https://hooks.public.example:8443"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a.example", "/"),
        ("https://a.example?x=1", "/?x=1"),
        ("https://a.example/?", "/?"),
        ("https://a.example/a//b/../c", "/a//b/../c"),
    ],
)
def test_the_target_is_sent_as_it_was_written(url: str, target: str) -> None:
    assert check_url(url, AddressPolicy()).target == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hook",
        "//a.example/",
        "ftp://a.example/",
        "file:///etc/passwd",
        "gopher://a.example/",
        "javascript:alert(1)",
        "https:a.example",
        "https:///a.example",
        "https:\\\\a.example\\",
        "https://",
        "https://:443/",
        "https://a.example:",
        "https://user@a.example/",
        "https://user:pass@a.example/",
        "https://a.example@b.example/",
        "https://a.example#@b.example/",
        "https://a.example/#part",
        "https://a.example/ x",
        " https://a.example/",
        "https://a.example/\n",
        "https://a.example/\r\nX: y",
        "https://a.example/\u202e",
        "https://bücher.example/",
        "https://a.example\\b",
        "https://a..example/",
        "https://.a.example/",
        "https://a.example./",
        "https://localhost./",
        "https://-a.example/",
        "https://a-.example/",
        f"https://{'a' * 64}.example/",
        f"https://{'a.' * 127}example/",
        "https://[::1",
        "https://[]/",
        "https://[1.2.3.4]/",
        "https://[2606:4700::1]x/",
        "https://a.example:443443/",
        "https://a.example:-1/",
        "https://a.example:+443/",
        "https://a.example:４４３/",
        "https://a.example/" + "a" * 2000,
    ],
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        check_url(url, AddressPolicy(allow_http=True))
    assert refusal.value.field == "webhook_url"


@pytest.mark.parametrize("port", [0, 1, 22, 25, 79, 81, 442, 444, 1023, 65536, 99999])
def test_privileged_ports_other_than_http_and_https_are_refused(port: int) -> None:
    with pytest.raises(InvalidOption, match="port"):
        check_url(f"https://a.example:{port}/", AddressPolicy())


@pytest.mark.parametrize("port", [80, 443, 1024, 8080, 65535])
def test_the_usual_ports_pass(port: int) -> None:
    assert check_url(f"https://a.example:{port}/", AddressPolicy()).port == port


def test_plain_http_needs_the_setting() -> None:
    with pytest.raises(InvalidOption, match="https"):
        check_url("http://a.example/", AddressPolicy())
    assert check_url("http://a.example/", AddressPolicy(allow_http=True)).port == 80


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["93.184.216.34", "::1"],
        ["::ffff:93.184.216.34"],
        ["93.184.216.34", "fe80::1%eth0"],
        ["93.184.216.34", "not an address"],
        ["93.184.216.34"] * 999 + ["10.0.0.1"],
    ],
)
async def test_a_name_with_one_forbidden_address_is_refused(found: list[str]) -> None:
    with pytest.raises(InvalidOption):
        await resolve("a.example", 443, AddressPolicy(lookup=names(**{"a.example": found})))


async def test_every_look_up_is_a_new_one() -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])

    async def lookup(host: str, port: int) -> Sequence[str]:
        return next(answers)

    policy = AddressPolicy(lookup=lookup)
    assert await resolve("rebind.example", 443, policy) == ["93.184.216.34"]
    with pytest.raises(InvalidOption):
        await resolve("rebind.example", 443, policy)


async def test_a_failed_or_empty_look_up_is_no_permission_and_may_be_tried_again() -> None:
    policy = AddressPolicy(lookup=names(**{"empty.example": []}))
    for host in ("missing.example", "empty.example"):
        with pytest.raises(OSError):
            await resolve(host, 443, policy)


async def test_registration_says_the_same_of_missing_and_of_inner_names_and_names_no_address() -> None:
    policy = AddressPolicy(lookup=names(**{"inner.example": ["10.1.2.3"]}))
    said = set()
    for url in ("https://missing.example/", "https://inner.example/", "https://10.1.2.3/", "https://167838211/"):
        with pytest.raises(InvalidOption) as refusal:
            await check_registration(url, policy)
        said.add(str(refusal.value))
    assert said == {"webhook_url: must lead to public addresses only"}


async def test_registration_does_not_wait_for_a_name_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lookup(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(addresses, "REGISTRATION_TIMEOUT_S", 0.01)
    with pytest.raises(InvalidOption):
        await check_registration("https://a.example/", AddressPolicy(lookup=lookup))


def test_the_operator_may_allow_networks_and_gets_exactly_those() -> None:
    settings = Settings(webhook_allow_networks=("127.0.0.0/8", "::1/128", "10.1.0.0/16"), webhook_allow_http=True)
    policy = AddressPolicy.from_settings(settings)
    assert policy.allow_http
    assert all(policy.allows(address) for address in ("127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "8.8.8.8"))
    assert not any(policy.allows(address) for address in ("10.2.0.1", "::2", "::ffff:127.0.0.1", "169.254.169.254"))
    assert check_url("http://127.0.0.1:9000/x", policy).host == "127.0.0.1"
    assert check_url("http://[::1]:9000/x", policy).authority == "[::1]:9000"


@pytest.mark.parametrize("text", ["127.0.0.1/8", "localhost", "10.0.0.0/33"])
def test_a_network_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InvalidOption, match="webhook_allow_networks"):
        AddressPolicy.from_settings(Settings(webhook_allow_networks=(text,)))


def test_another_field_can_be_named() -> None:
    with pytest.raises(InvalidOption) as refusal:
        check_url("https://127.0.0.1/", AddressPolicy(), field="init_image")
    assert refusal.value.field == "init_image"


async def test_the_system_resolver_is_asked_without_blocking_and_its_errors_are_os_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    def slow(host: bytes, port: int, **_: object) -> list[object]:
        assert release.wait(10)
        if host == b"missing.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    found = asyncio.create_task(look_up("a.example", 443))
    missing = asyncio.create_task(look_up("missing.example", 443))
    await asyncio.sleep(0)
    assert not found.done()
    release.set()
    assert await found == ["93.184.216.34"]
    with pytest.raises(socket.gaierror):
        await missing


async def test_look_ups_that_hang_are_bounded_and_give_their_places_back(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(host: bytes, port: int, **_: object) -> list[object]:
        assert release.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(addresses, "_lookups", threading.BoundedSemaphore(2))
    waiting = [asyncio.create_task(look_up("slow.example", 443)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many"):
        await look_up("other.example", 443)
    waiting[0].cancel()
    release.set()
    assert await waiting[1] == ["93.184.216.34"]
    assert await look_up("other.example", 443) == ["93.184.216.34"]


def test_the_allowed_networks_are_kept_as_networks() -> None:
    assert AddressPolicy.from_settings(Settings(webhook_allow_networks=("10.0.0.0/8",))).allowed == (
        ip_network("10.0.0.0/8"),
    )
