"""Names and ids."""

import string
import subprocess
import sys

import pytest
from redis.crc import key_slot

from orchestrator.errors import InvalidOption
from orchestrator.keys import Keys, check_job_id, check_queue_name, new_job_id, new_token


def test_ids_are_distinct_valid_and_of_one_length() -> None:
    ids = {new_job_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    assert {len(job_id) for job_id in ids} == {26}
    assert all(check_job_id(job_id) == job_id for job_id in ids)


def test_tokens_are_distinct_and_hold_no_character_that_means_something_in_a_key() -> None:
    tokens = {new_token() for _ in range(10_000)}
    assert len(tokens) == 10_000
    assert set("".join(tokens)) <= set(string.ascii_letters + string.digits + "-_")


FORK = """
import os
from orchestrator.keys import new_job_id, new_token

def take():
    return [new_job_id()[9:] for _ in range(100)] + [new_token() for _ in range(100)]

take()  # what is left over is not for both
if child := os.fork():
    os.waitpid(child, 0)
print(*take(), flush=True)
"""


def test_a_forked_process_gets_none_of_its_parents() -> None:
    run = subprocess.run([sys.executable, "-c", FORK], check=True, capture_output=True, text=True, timeout=30)
    of_child, of_parent = (set(line.split()) for line in run.stdout.splitlines())
    assert (len(of_child), len(of_parent)) == (200, 200)
    assert not of_child & of_parent


def test_all_keys_of_a_queue_lie_in_one_slot() -> None:
    keys = Keys("paint")
    names = [keys.meta, keys.none, keys.marker, keys.events, keys.outbox, keys.live, keys.control, keys.preview("a{b}")]
    assert all(name.startswith("kargah:{paint}:") for name in names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "9", "x" * 64])
def test_a_good_queue_name_is_taken(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "job_id", ["", "a b", "-a", ".a", "a\n", "a\x00", "é", "{a}", "a" * 129, None, 1, b"a"], ids=repr
)
def test_a_bad_id_is_refused(job_id: object) -> None:
    with pytest.raises(InvalidOption):
        check_job_id(job_id)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "tag", "prefix"),
    [("paint", "paint", "kargah:{paint}:"), ("{studio}paint", "studio", "kargah:{studio}paint:")],
)
def test_a_tag_may_stand_before_a_queues_name(name: str, tag: str, prefix: str) -> None:
    keys = Keys(name)
    assert (keys.queue, keys.tag, keys.prefix) == (name, tag, prefix)
    assert key_slot(keys.meta.encode()) == key_slot(tag.encode())


@pytest.mark.parametrize("name", ["", "{a}", "{}a", "a{b}", "{a}{b}", "{a}b}", "{a", "{-}a", "{a}-", "{{a}}b", "a:b"])
def test_a_bad_queue_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption):
        check_queue_name(name)
