"""The README: its settings table is the truth, its examples run, its links lead somewhere."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from orchestrator.cli.up import LOCAL_PROFILE
from orchestrator.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def settings_table() -> str:
    """The table as it should be: from the fields and docstrings of `Settings`."""
    (definition,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(definition, ast.ClassDef)
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value.value, str)
            rows.append(f"| `{PREFIX}{field.target.id.upper()}` | {_default(field.target.id)} | {text.value.value} |")
    return "\n".join(rows)


def _default(name: str) -> str:
    value: object = msgspec.structs.fields(Settings)[list(Settings.__struct_fields__).index(name)].default
    if isinstance(value, Path):
        value = f"~/{value.relative_to(Path.home())}"
    if isinstance(value, tuple):
        value = ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else ""


def code(language: str, containing: str) -> str:
    """The one code block of `language` that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if containing in block]
    return str(block)


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert settings_table() in README, f"the table should be:\n{settings_table()}"
    assert settings_table().count("\n") == 1 + len(Settings.__struct_fields__)


def test_the_local_profile_is_shown_as_it_is() -> None:
    for name, value in LOCAL_PROFILE.items():
        assert f"`{name}={value}`" in README
    assert Settings.from_env(LOCAL_PROFILE).keep_completed_s == 7 * 24 * 3600


def test_the_queue_example_runs_as_it_stands(url: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code("python", "Worker(").replace("redis://localhost:6379", url))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "completed {'letters': 5}"


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_within_the_repository_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_it_names_the_commands_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", README, re.MULTILINE))
    assert {"run", "test", "check"} <= named <= targets
