import asyncio
import contextlib
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_network
from typing import Any

import pytest

from orchestrator.addresses import AddressPolicy, Endpoint, check_registration, check_url
from orchestrator.errors import InvalidOption
from tests.orchestrator.ssrf_vectors import forbidden_hosts
from tests.webhooks.posting import failure, policy, post
from tests.webhooks.receiver import Receiver, answer
from webhooks.transport import CallFailed, Transport


async def permissive(host: str, port: int) -> Sequence[str]:
    """A C library's view of numeric hosts, without asking a name server."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except UnicodeError as problem:
        raise OSError(str(problem)) from None
    return [str(record[4][0]) for record in found]


async def test_no_spelling_of_an_inner_address_is_ever_connected_to(canary: Receiver) -> None:
    transport = Transport(AddressPolicy(allow_http=True, lookup=permissive))
    tried = 0
    for host in forbidden_hosts():
        with pytest.raises(InvalidOption):
            await transport.post(check_url(f"http://{host}:{canary.port}/", transport.policy), {}, b"")
        # The second wall by itself: as if the check of the URL had let it pass.
        with pytest.raises((InvalidOption, CallFailed)):
            await transport.post(Endpoint("http", host.strip("[]"), canary.port, "/"), {}, b"")
        tried += 1
    assert tried >= 400
    assert canary.accepted == 0
    await post(canary)  # the canary sings when it is reached
    assert canary.accepted == 1


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.2"],
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.1", "::1"],
        ["::ffff:127.0.0.1"],
        ["127.0.0.1"] * 999 + ["::1"],
    ],
)
async def test_a_name_with_one_inner_address_is_refused(canary: Receiver, found: list[str]) -> None:
    with pytest.raises(InvalidOption):
        await post(canary, Transport(policy({"a.example": found})), "a.example")
    assert canary.accepted == 0


async def test_a_name_that_changes_after_the_registration_is_refused(canary: Receiver) -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    allowed = AddressPolicy(allow_http=True, allowed=(ip_network("127.0.0.1/32"),), lookup=rebinding)
    endpoint = await check_registration(f"http://rebind.example:{canary.port}/", allowed)
    with pytest.raises(InvalidOption):
        await Transport(allowed).post(endpoint, {}, b"")
    assert canary.accepted == 0


async def test_the_connection_goes_to_the_very_address_that_was_checked() -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    allowed = AddressPolicy(allow_http=True, allowed=(ip_network("127.0.0.1/32"),), lookup=rebinding)
    async with Receiver() as receiver:
        assert (await post(receiver, Transport(allowed), "rebind.example")).status == 200
    assert receiver.requests[0].headers["host"] == f"rebind.example:{receiver.port}"
    assert len(list(answers)) == 2  # one look-up, no second opinion


async def test_a_name_that_cannot_be_resolved_may_be_tried_again() -> None:
    async with Receiver() as receiver:
        assert (await failure(receiver, host="missing.example")).kind == "dns"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(canary: Receiver, status: int) -> None:
    async with Receiver(answer(status, f"Location: http://127.0.0.1:{canary.port}/")) as receiver:
        assert (await post(receiver)).status == status
        assert receiver.accepted == 1
    assert canary.accepted == 0


async def test_proxies_of_the_environment_are_ignored(canary: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{canary.port}")
    async with Receiver() as receiver:
        assert (await post(receiver)).status == 200
    assert canary.accepted == 0


async def test_the_second_address_is_tried_when_the_first_does_not_answer() -> None:
    both = policy({"a.example": ["127.0.0.3", "127.0.0.1"]}, allow=("127.0.0.0/8",))
    async with Receiver() as receiver:
        assert (await post(receiver, Transport(both), "a.example")).status == 200


async def test_an_address_that_swallows_packets_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    both = policy({"a.example": ["127.0.0.3", "127.0.0.1"]}, allow=("127.0.0.0/8",))
    real = asyncio.open_connection

    async def swallowing(host: str, *args: Any, **options: Any) -> Any:
        if host == "127.0.0.3":
            await asyncio.Event().wait()
        return await real(host, *args, **options)

    monkeypatch.setattr(asyncio, "open_connection", swallowing)
    async with Receiver() as receiver:
        assert (await post(receiver, Transport(both, timeout_s=0.4), "a.example")).status == 200


@pytest.fixture
async def canary() -> Any:
    """Listens on every address of this machine; `accepted` counts connections, answered or not."""
    async with AsyncExitStack() as stack:
        four = await stack.enter_async_context(Receiver(host="0.0.0.0"))
        six = Receiver(host="::", port=four.port)
        if socket.has_ipv6:
            with contextlib.suppress(OSError):  # a machine without IPv6
                await stack.enter_async_context(six)
        yield _Canary(four, six)


class _Canary(Receiver):
    def __init__(self, *parts: Receiver) -> None:
        super().__init__(host="127.0.0.1", port=parts[0].port)
        self.parts = parts

    @property
    def accepted(self) -> int:
        return sum(part.accepted for part in self.parts)

    @accepted.setter
    def accepted(self, count: int) -> None:
        pass
