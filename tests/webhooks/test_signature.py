import json
import random
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from orchestrator import signing_secret
from orchestrator.keys import new_job_id
from webhooks.signature import message_id, signed_headers

ALPHABET = "abc xyz 0189 äöüß کارگاه 絵 🎨 \u202e \\ \" ' \t"


def body(chance: random.Random) -> bytes:
    text = "".join(chance.choices(ALPHABET, k=chance.randrange(300)))
    return json.dumps(
        {"type": "generation.completed", "data": {"text": text}}, ensure_ascii=chance.random() < 0.5
    ).encode()


def test_the_official_library_verifies_300_random_bodies() -> None:
    chance = random.Random(7)
    for _ in range(300):
        secret, content = signing_secret.new(), body(chance)
        message = message_id(new_job_id(), f"{chance.randrange(2**41)}-{chance.randrange(100)}")
        headers = signed_headers(message, int(time.time()), content, signing_secret.keys(secret))
        assert Webhook(secret).verify(content, headers) == json.loads(content)


def test_what_was_tampered_with_is_refused() -> None:
    secret = signing_secret.new()
    content, now = b'{"a":1}', int(time.time())
    good = signed_headers("msg_a_1-0", now, content, signing_secret.keys(secret))
    assert Webhook(secret).verify(content, good) == {"a": 1}
    for bad_content, headers, key in (
        (b'{"a":2}', good, secret),
        (content, good | {"webhook-id": "msg_a_1-1"}, secret),
        (content, good | {"webhook-timestamp": str(now - 1)}, secret),
        (content, good, signing_secret.new()),
        (content, signed_headers("msg_a_1-0", now - 301, content, signing_secret.keys(secret)), secret),
        (content, good | {"webhook-signature": good["webhook-signature"].replace("v1,", "v1,A")}, secret),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(key).verify(bad_content, headers)


def test_during_a_rotation_both_keys_verify() -> None:
    new, old = signing_secret.new(), signing_secret.new()
    content = "رنگ".encode()
    headers = signed_headers("msg_a_1-0", int(time.time()), b'"%s"' % content, signing_secret.keys(f"{new} {old}"))
    assert headers["webhook-signature"].count("v1,") == 2
    for secret in (new, old):
        assert Webhook(secret).verify(b'"%s"' % content, headers) == "رنگ"


def test_the_library_signs_the_same() -> None:
    secret, moment = signing_secret.new(), datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
    ours = signed_headers("msg_a_1-0", int(moment.timestamp()), b"{}", signing_secret.keys(secret))
    assert ours["webhook-signature"] == Webhook(secret).sign("msg_a_1-0", moment, "{}")


@given(st.text(min_size=1, max_size=128))
def test_an_id_never_holds_a_dot_whatever_the_job_is_called(job_id: str) -> None:
    message = message_id(job_id, "1764445200000-3")
    assert "." not in message
    assert message.isascii()
    assert message == message_id(job_id, "1764445200000-3")


def test_a_made_job_id_is_seen_in_the_id_and_different_ids_stay_different() -> None:
    job_id = new_job_id()
    assert message_id(job_id, "5-0") == f"msg_{job_id}_5-0"
    assert len({message_id(job, "5-0") for job in ("a.b", "a:b", "a@b", "a_b")}) == 4
