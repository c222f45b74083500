"""Posting to a receiver, as the tests of the transport do it."""

import socket
from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from orchestrator.addresses import AddressPolicy, check_url
from tests.webhooks.receiver import Receiver
from webhooks.transport import Answer, CallFailed, Transport


def policy(names: dict[str, Sequence[str]] | None = None, allow: Sequence[str] = ("127.0.0.1/32",)) -> AddressPolicy:
    """Only 127.0.0.1 may be called; 127.0.0.2 and all others stand for the network behind us."""

    async def lookup(host: str, port: int) -> Sequence[str]:
        if host not in (names or {}):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return (names or {})[host]

    return AddressPolicy(allow_http=True, allowed=tuple(ip_network(text) for text in allow), lookup=lookup)


async def post(receiver: Receiver, transport: Transport | None = None, host: str | None = None) -> Answer:
    transport = transport or Transport(policy())
    url = f"http://{host}:{receiver.port}/hook" if host else receiver.url
    return await transport.post(check_url(url, transport.policy), {"webhook-id": "msg_1"}, b'{"a":1}')


async def failure(receiver: Receiver, transport: Transport | None = None, host: str | None = None) -> CallFailed:
    with pytest.raises(CallFailed) as failed:
        await post(receiver, transport, host)
    assert "127." not in str(failed.value)
    return failed.value
