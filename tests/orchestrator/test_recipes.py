"""Every Python block of the queue's pages runs as it stands, against a real server."""

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

import orchestrator
from orchestrator import Queue

FOLDER = Path(orchestrator.__file__).parent
PAGES = ("README.md", "RECIPES.md", "COMING_FROM.md")
MAX_LINES = 12
PRINTING = "def render(job):\n    return f\"<p>{job.data['text']}</p>\"\n"


class Recipe(NamedTuple):
    """A block of Python on a page, and the heading above it."""

    page: str
    title: str
    source: str


def _recipes() -> list[Recipe]:
    found = []
    for page in PAGES:
        text = (FOLDER / page).read_text()
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            heading = re.findall(r"^#+ (.*)", text[: block.start()], re.MULTILINE)[-1]
            found.append(Recipe(page, heading, block[1]))
    return found


RECIPES = _recipes()


def _compiled(recipe: Recipe) -> CodeType:
    code: CodeType = compile(recipe.source, f"{recipe.page}: {recipe.title}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.page}: {recipe.title}")
async def test_a_recipe_runs_as_it_stands(
    recipe: Recipe, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "printing.py").write_text(PRINTING)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {name: getattr(orchestrator, name) for name in orchestrator.__all__}
    names |= {"asyncio": asyncio, "url": url}
    run: Any = eval(_compiled(recipe), names)
    if inspect.iscoroutine(run):
        async with asyncio.timeout(60):
            await run
    for queue in {value.name for value in names.values() if isinstance(value, Queue)}:
        async with Queue(queue, url) as used:
            await used.obliterate(force=True)


def test_there_are_recipes_and_they_are_short() -> None:
    assert len(RECIPES) >= 14
    for recipe in RECIPES:
        lines = [line for line in recipe.source.splitlines() if line.strip()]
        assert len(lines) <= MAX_LINES, recipe.title
        assert max(map(len, lines)) <= 120, recipe.title


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_pages_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", (FOLDER / page).read_text()):
        assert (FOLDER / link).exists(), link


def test_the_design_page_fits_on_its_pages() -> None:
    for page in (FOLDER / "README.md", FOLDER.parent / "lua" / "README.md"):
        assert len(page.read_text().splitlines()) <= 150, page
