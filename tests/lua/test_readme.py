"""The pages beside the scripts: every script, event and name of a header is explained once."""

import re
from pathlib import Path

import msgspec
import pytest

import lua
from orchestrator.job import EVENT_TYPES, Header

FOLDER = Path(lua.__file__).parent
README = (FOLDER / "README.md").read_text()


def section(title: str) -> str:
    """The text under a heading of the page."""
    return README.split(f"## {title}\n")[1].split("\n## ")[0]


def firsts(title: str) -> list[str]:
    """All that stands in backticks in the first column of a table."""
    rows = [line.split(" | ")[0] for line in section(title).splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_script_is_in_the_table_once() -> None:
    assert sorted(firsts("Scripts")) == sorted(lua.names())


def test_no_key_is_in_the_dictionary_twice() -> None:
    keys = firsts("Keys")
    assert len(keys) == len(set(keys))


def test_every_kind_of_key_that_scripts_name_is_in_the_dictionary() -> None:
    known = {re.split(r"[<:]", key)[0] for key in firsts("Keys")}
    sources = [file.read_text() for file in [*FOLDER.glob("*.lua"), *FOLDER.glob("includes/*.lua")]]
    named = {name for source in sources for name in re.findall(r"prefix \.\. '([a-z_]+)", source)}
    assert named - known == set()
    assert "job" in named


def test_every_event_of_a_job_is_in_the_table() -> None:
    rows = re.findall(r"^\| ([a-z, -]+) \| ", section("Events"), re.MULTILINE)
    told = [name.strip() for row in rows for name in row.split(",")]
    assert len(told) == len(set(told))
    assert set(told) >= EVENT_TYPES


def test_every_name_of_a_header_is_explained() -> None:
    explained = section("Keys").split("The header's names:")[1]
    for field in msgspec.structs.fields(Header):
        assert f"`{field.encode_name}`" in explained, field.name


@pytest.mark.parametrize("page", ["README.md", "DESIGN.md", "SEMANTICS.md"])
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", (FOLDER / page).read_text()):
        assert (FOLDER / link).exists(), link
