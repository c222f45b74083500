"""Events as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.events import Event, id_key

EVENT = Event(id="5-1", type="progress", job="a", at=9, run=1, attempt=2, seq=3, fields={"progress": {"step": 1}})


def test_an_event_is_read_back_as_it_was_written() -> None:
    assert Event.decode("5-1", EVENT.encode()) == EVENT
    assert Event.decode_entry(b"5-1 " + EVENT.encode()) == EVENT
    assert EVENT.encode().startswith(b'{"type":"progress","job":"a","at":9,"run":1,"attempt":2,"seq":3,"progress"')


def test_an_event_of_the_queue_has_no_place_in_a_job() -> None:
    event = Event(id="5-1", type="removed", job="a", at=9, fields={"prev": "completed"})
    assert event.flat() == {"type": "removed", "job": "a", "at": 9, "prev": "completed"}
    assert Event.decode("5-1", event.encode()) == event
    assert Event(id="1-1", type="paused", at=9).flat() == {"type": "paused", "at": 9}


@given(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)))
def test_ids_order_as_their_two_numbers(key: tuple[int, int]) -> None:
    assert id_key(f"{key[0]}-{key[1]}") == key


@pytest.mark.parametrize(
    "text", ["", "1", "-", "1-", "-1", "1-x", "1-1-1", f"1-{2**64}", "١-1", " 1-1", "1-1\n"], ids=repr
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no event id"):
        id_key(text)
