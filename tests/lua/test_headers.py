"""Every script says on its first lines what it takes, returns, refuses and tells; this compares that with its code."""

import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import lua
from orchestrator.scripts import Scripts

ROOT = Path(__file__).parents[2]
SECTIONS = ["KEYS", "ARGV", "Returns", "Errors", "Events"]
USERS_ADD = {"add_jobs", "add_bulk", "add_flow", "upsert_job_scheduler"}
FUNCTION = re.compile(r"^(?:local )?function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
NO_EVENTS = (
    r"those of \w+|of jobs that were due|of (?:its|the|a) parent|of their parents|of parents in other queues"
    r"|where only some are kept"
)
BINDING = re.compile(r"^local ([\w, ]+) = (.*ARGV\[?.*)$", re.MULTILINE)


class Header(NamedTuple):
    """The parsed comment at the top of a script."""

    shebang: str
    duty: str
    sections: dict[str, list[str]]

    def names(self, section: str) -> list[str]:
        """First words of a section's lines, up to a line that begins a repeated group."""
        names = []
        for line in self.sections[section]:
            if line.startswith("then "):
                break
            names.append(line.split()[0])
        return [name for name in names if name != "none" or section == "KEYS"]


def text_of(name: str) -> str:
    return (ROOT / "lua" / f"{name}.lua").read_text()


def header_of(name: str) -> Header:
    shebang, *lines = text_of(name).splitlines()
    comment = []
    for line in lines:
        if not line.startswith("--") or line.startswith("-- include:"):
            break
        comment.append(line[2:])
    duty, sections, section = [], {}, ""
    for line in comment:
        if line.strip() in SECTIONS and line.startswith(" ") and not line.startswith("  "):
            section = line.strip()
            sections[section] = list[str]()
        elif section and line.strip():
            assert line.startswith("   "), f"{name}: {line!r} is not indented under {section}"
            sections[section].append(line.strip())
        elif line.strip():
            duty.append(line.strip())
    return Header(shebang, " ".join(duty), sections)


def reachable(name: str) -> str:
    """The code of a script and of those of its included functions that it can call."""
    includes: dict[str, str] = {}
    lua._collect(text_of(name), [], includes, lua._read)
    code = "\n".join([*includes.values(), text_of(name)])
    code = "\n".join(line for line in code.splitlines() if not line.startswith(("--", "#!")))
    functions = {match[1]: match[0] for match in FUNCTION.finditer(code)}
    body = FUNCTION.sub("", code)
    found, todo = {"": body}, [body]
    while todo:
        words = set(re.findall(r"\w+", todo.pop()))
        for called in words & functions.keys() - found.keys():
            found[called] = functions[called]
            todo.append(functions[called])
    return "\n".join(found.values())


def words(lines: list[str], pattern: str) -> set[str]:
    return set(re.findall(pattern, " ".join(lines)))


@pytest.mark.parametrize("name", lua.names())
def test_a_script_says_what_it_does_and_has_every_section_once_and_in_order(name: str) -> None:
    header = header_of(name)
    assert header.duty.endswith(".")
    assert list(header.sections) == SECTIONS
    assert all(header.sections.values())


@pytest.mark.parametrize("name", lua.names())
def test_a_script_begins_with_the_flags_of_its_kind(name: str) -> None:
    if name in USERS_ADD:
        expected = "#!lua"
    elif name.startswith("get_"):
        expected = "#!lua flags=no-writes"
    else:
        expected = "#!lua flags=allow-oom"
    assert header_of(name).shebang == expected
    flag = expected.partition("=")[2]
    registered = f"function_name = '{lua.library().function(name)}', flags = {{ {flag and repr(flag)} }}"
    assert registered in lua.library().text


@pytest.mark.parametrize("name", lua.names())
def test_a_script_declares_two_keys_and_names_them_in_one_line(name: str) -> None:
    assert header_of(name).names("KEYS") == ["meta", "none"]
    assert text_of(name).count("KEYS[") == 2
    assert "local _, _ = KEYS[1], KEYS[2]\n" in text_of(name)


@pytest.mark.parametrize("name", lua.names())
def test_the_arguments_in_the_header_are_those_that_are_bound_in_that_order(name: str) -> None:
    body = text_of(name).split("local _, _ = KEYS[1], KEYS[2]\n")[1]
    bindings = body.split("\n\n")[0]
    bound: list[str] = []
    places: list[int] = []
    for names, values in BINDING.findall(bindings):
        bound += names.split(", ")
        places += [
            int(place)
            for place in re.findall(r"ARGV\[(\d+)\]|unpack\(ARGV, (\d+)\)", values)
            for place in place
            if place
        ]
        places += [1] * values.count("unpack(ARGV)")
    assert bound == header_of(name).names("ARGV")
    assert places == list(range(1, len(bound) + 1))
    assert not re.search(r"ARGV\[\d", body[len(bindings) :]), "the body uses the names"


@pytest.mark.parametrize("name", lua.names())
def test_the_errors_in_the_header_are_those_the_script_can_answer(name: str) -> None:
    raised = set(re.findall(r"error_reply\('([A-Z_]+) ", reachable(name)))
    assert words(header_of(name).sections["Errors"], r"\b[A-Z]+_[A-Z_]+\b") == raised


@pytest.mark.parametrize("name", lua.names())
def test_the_events_in_the_header_are_those_the_script_can_emit(name: str) -> None:
    code = reachable(name)
    emitted = set(re.findall(r"(?:emit|emit_queue_event|finish_job|end_run)\((?:job, )?'([\w-]+)'", code))
    emitted |= {"paused", "resumed"} & emitted
    if "added_text(job, now)" in code:
        emitted.add("added")
    lines = header_of(name).sections["Events"]
    for other in re.findall(r"those of (\w+)", " ".join(lines)):
        lines = lines + header_of(other).sections["Events"]
    declared = words(
        [re.sub(rf"\([^)]*\)|{NO_EVENTS}", "", line) for line in lines],
        r"\b[a-z]+(?:-[a-z]+)*\b",
    )
    assert declared - {"none", "and", "or", "when", "another", "call", "made", "this", "id"} == emitted


def test_scripts_has_a_method_for_every_script_that_runs_it() -> None:
    for name in lua.names():
        method = getattr(Scripts, name)
        assert re.search(rf'_run\w*\(\s*"{name}"', inspect.getsource(method)), name
    parts = "".join(inspect.getsource(part) for part in Scripts.__mro__[:-1])
    assert set(re.findall(r'_run\w*\(\s*"(\w+)"', parts)) == set(lua.names())


def test_nothing_but_scripts_runs_lua() -> None:
    pattern = re.compile(r"\.(evalsha|eval|evalsha_ro|eval_ro|fcall|register_script|script_load)\(|\"(FCALL)\",")
    found = {}
    for room in ("orchestrator", "workers", "webhooks"):
        for path in (ROOT / room).rglob("*.py"):
            if count := len([call for call in pattern.findall(path.read_text()) if call[0] != "eval"]):
                found[path.name] = count
    assert found == {"call.py": 1, "cluster.py": 1, "keeper_process.py": 2}, "the keeper stands outside the package"


def test_only_store_job_writes_a_definition() -> None:
    for name in lua.names():
        code = reachable(name)
        elsewhere = re.sub(r"^(?:local )?function store_job\(.*?^end$", "", code, flags=re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"redis\.call\('(\w+)', prefix \.\. 'job:'", elsewhere)) <= {"GET", "DEL"}, name
        assert "unsaved[prefix .. 'job:'" not in elsewhere
    assert "unsaved[prefix .. 'job:'" in reachable("add_jobs")


def test_a_record_is_asked_for_all_that_only_some_have() -> None:
    text = (ROOT / "lua" / "includes" / "job_record.lua").read_text()
    rare = re.findall(r"'(\w+)'", text.partition("local RARE = {")[2].partition("}")[0])
    asked = text.partition("local function has_rare")[2].partition("end")[0]
    assert re.findall(r"job\.(\w+)", asked) == rare


def test_the_scripts_are_found_and_the_includes_pasted_once() -> None:
    assert len(lua.names()) == len(list((ROOT / "lua").glob("*.lua")))
    text = lua.library().text
    assert "-- include:" not in text
    shared = re.findall(r"^function (\S+)\(", text, re.MULTILINE)
    assert len(shared) == len(set(shared)) > 100
    assert text.count("\ndo -- includes/") == len(list((ROOT / "lua" / "includes").glob("*.lua")))


def test_every_include_is_used() -> None:
    used = {
        include
        for path in (ROOT / "lua").rglob("*.lua")
        for line in re.findall(r"^-- include: (.+)$", path.read_text(), re.MULTILINE)
        for include in line.split(", ")
    }
    assert used == {path.stem for path in (ROOT / "lua" / "includes").glob("*.lua")}


def test_a_missing_include_a_loop_and_a_name_that_is_included_are_errors() -> None:
    texts = {
        "one.lua": "#!lua\n-- include: nothing\n",
        "two.lua": "#!lua\n-- include: a\n",
        "three.lua": "#!lua\n-- include: c\nlocal _, _ = KEYS[1], KEYS[2]\nlocal known = 1\n",
        "includes/a.lua": "-- include: b\n",
        "includes/b.lua": "-- include: a\n",
        "includes/c.lua": "local known = {}\n",
    }

    def read(path: str) -> str:
        return texts.get(path) or lua._read(path)

    with pytest.raises(lua.IncludeError, match="no lua/includes/nothing"):
        lua.paste(["one"], read)
    with pytest.raises(lua.IncludeError, match="a -> b -> a"):
        lua.paste(["two"], read)
    with pytest.raises(lua.IncludeError, match="three declares what it includes: known"):
        lua.paste(["three"], read)


def test_what_an_include_keeps_is_of_one_call_or_never_changes() -> None:
    """Else a call would find what another one left: the functions of a library live as long as the server.

    How a number or a name is written is the same in every call, so that is remembered.
    """
    remembered = {"WRITTEN_AS", "WRITTEN", "QUOTES", "QUOTED"}
    for path in (ROOT / "lua" / "includes").glob("*.lua"):
        text = path.read_text()
        functions = set(re.findall(r"^local function (\w+)", text, re.MULTILINE))
        kept = set(lua._own_names(text)) - set(lua._of_a_call(text)) - functions
        assert all(name.isupper() for name in kept), path.name
        body = "\n".join(line for line in text.splitlines() if line.startswith(" "))
        for name in kept - remembered:
            assert not re.search(rf"(?<![.\w]){name}(?:\[[^]]*\]|\.\w+)? =(?!=)", body), f"{path.name} changes {name}"


def test_the_linter_finds_nothing() -> None:
    from lua.lint import main

    assert main() == 0
