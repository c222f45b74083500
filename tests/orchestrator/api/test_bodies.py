"""Bodies that are not what they should be: refused with a client's error, whatever they are."""

import threading
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from orchestrator.api.bodies import MAX_DEPTH, decode, is_too_deep
from orchestrator.errors import InvalidOption
from orchestrator.generation import GenerationRequest
from orchestrator.queue import Queue

ANYTHING = msgspec.json.Decoder()
JSON = {"Content-Type": "application/json"}


def around(value: bytes) -> bytes:
    return b'{"prompt": "a red circle", "metadata": {"x": %b}}' % value


NOT_JSON = {
    "nothing": b"",
    "cut": b'{"prompt": "a',
    "two": b'{"prompt": "a"} {"prompt": "b"}',
    "NaN": around(b"NaN"),
    "Infinity": around(b"-Infinity"),
    "leading zero": around(b"01"),
    "single quotes": b"{'prompt': 'a'}",
    "comment": b'{"prompt": "a" /* no */}',
    "trailing comma": b'{"prompt": "a",}',
    "byte order mark": b'\xef\xbb\xbf{"prompt": "a"}',
    "utf-16": '{"prompt": "a"}'.encode("utf-16"),
    "not utf-8": b'{"prompt": "\xff\xfe"}',
    "overlong utf-8": b'{"prompt": "\xc0\xaf"}',
    "surrogates as utf-8": b'{"prompt": "\xed\xa0\x80"}',
    "lone surrogate": b'{"prompt": "\\ud800"}',
    "lone low surrogate": b'{"prompt": "\\udc00"}',
    "lone surrogate in a name": b'{"prompt": "a", "metadata": {"\\ud800": 1}}',
    "control character": b'{"prompt": "a\nb"}',
    "nested lists": b"[" * 100_000,
    "nested lists, closed": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "nested in metadata": around(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH),
    "nested behind a string": around(b'"\\"[", "y": ' + b"[" * 100 + b"]" * 100),
    "brackets that do not match": b"]" * 100 + b"[" * 100,
}

WRONG = {
    "a list": (b"[]", "body"),
    "null": (b"null", "body"),
    "a number": (b"1", "body"),
    "a huge float": (around(b"1e999"), "metadata"),
    "a very long number": (around(b"9" * 5000), "metadata"),
    "a 65 bit seed": (b'{"prompt": "a", "seed": 18446744073709551616}', "seed"),
    "a negative zero of a seed": (b'{"prompt": "a", "seed": -0.0}', "seed"),
    "the last of two": (b'{"prompt": "a", "width": 64, "width": 1}', "width"),
    "a prototype": (b'{"prompt": "a", "__proto__": {"state": "completed"}}', "__proto__"),
    "a name of a thousand": (b'{"prompt": "a", "%b": 1}' % (b"x" * 1000), "x" * 100),
}

FINE = {
    "a NUL": b'{"prompt": "a\\u0000b"}',
    "a pair of surrogates": b'{"prompt": "\\ud83d\\ude00"}',
    "right to left": '{"prompt": "دایره‌ی قرمز \u202e"}'.encode(),
    "markup": b'{"prompt": "</script><img src=x onerror=alert(1)>"}',
    "duplicate names": b'{"prompt": "a", "prompt": "b"}',
    "a long number": around(b"9" * 400),
    "a 65 bit number": around(b"18446744073709551616"),
    "a small number": around(b"1e-999"),
    "a negative zero": around(b"-0.0"),
    "brackets in a string": b'{"prompt": "%b"}' % (b"[{" * 900),
    "brackets behind a quote": b'{"prompt": "\\"%b\\\\"}' % (b"[{" * 900),
    "just not too deep": around(b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2)),
    "an unsafe name": b'{"prompt": "a", "metadata": {"__proto__": 1, "": 2}}',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
async def test_what_is_not_json_is_a_bad_request(api: httpx.AsyncClient, queue: Queue, body: bytes) -> None:
    response = await api.post("/v1/generations", content=body, headers=JSON)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"]
    assert sum((await queue.get_counts()).values()) == 0


@pytest.mark.parametrize(("body", "field"), WRONG.values(), ids=WRONG)
async def test_json_of_the_wrong_kind_names_its_field(
    api: httpx.AsyncClient, queue: Queue, body: bytes, field: str
) -> None:
    response = await api.post("/v1/generations", content=body, headers=JSON)
    assert response.status_code == 422
    assert response.json()["field"] == field
    assert sum((await queue.get_counts()).values()) == 0


@pytest.mark.parametrize("body", FINE.values(), ids=FINE)
async def test_odd_but_valid_json_is_taken_and_given_back(api: httpx.AsyncClient, body: bytes) -> None:
    response = await api.post("/v1/generations", content=body, headers=JSON)
    assert response.status_code == 202
    asked, answered = msgspec.json.decode(body), response.json()
    assert answered["input"]["prompt"] == asked["prompt"]
    assert answered["metadata"] == asked.get("metadata", {})
    again = (await api.get(answered["urls"]["self"])).json()
    assert again == answered


def test_deep_nesting_does_not_end_a_thread_with_a_small_stack() -> None:
    outcomes: list[object] = []

    def work() -> None:
        for body in (b"[" * 1_000_000, b'{"a":' * 150_000, b'["' * 400_000):
            try:
                decode(body, ANYTHING)
            except HTTPException as refusal:
                outcomes.append(refusal.status_code)

    size = threading.stack_size(64 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert outcomes == [400, 400, 400]


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(
    st.recursive(
        st.none() | st.text('"\\[]{}:,a'),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[]{}a'), inner, max_size=4),
    ),
    st.integers(0, MAX_DEPTH + 2),
)
def test_depth_is_counted_outside_of_strings(value: Any, wrapped: int) -> None:
    for _ in range(wrapped):
        value = [value, "]" * 70]
    body = msgspec.json.encode(value)
    assert is_too_deep(body) == (depth_of(value) > MAX_DEPTH)


@given(st.binary(max_size=300) | st.text('{}[]":,\\ \n01etrufalsn').map(str.encode))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    statuses = set()
    for decoder in (ANYTHING, msgspec.json.Decoder(GenerationRequest)):
        with suppress(InvalidOption):
            try:
                decode(body, decoder)
            except HTTPException as refusal:
                statuses.add(refusal.status_code)
    assert statuses <= {400}
