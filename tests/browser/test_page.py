"""The page in a real browser, before the real service: what a visitor sees and does.

The page's policy forbids `eval`, so nothing here waits by a JavaScript expression: conditions are about elements.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from tests.browser.conftest import OUTAGE, OpenPage
from tests.e2e.service import Service

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

AXE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"
PROMPT = "a red circle on a white background"
LONG = 100  # steps: long enough to do something on the way
PHONE = {"width": 390, "height": 844}
SMALL_PHONE = {"width": 360, "height": 740}


def ask(page: Page, prompt: str = PROMPT, steps: int | None = None) -> Locator:
    """Ask for a picture as a visitor does; the card that appears for it."""
    cards = page.get_by_role("article")
    before = cards.count() if page.get_by_role("article").first.is_visible() else 0
    page.get_by_role("textbox", name="Prompt").fill(prompt)
    if steps is not None:
        if not page.get_by_role("spinbutton", name="Steps").is_visible():
            page.get_by_text("Advanced").click()
        page.get_by_role("spinbutton", name="Steps").fill(str(steps))
    page.get_by_role("button", name="Create").click()
    expect(cards).to_have_count(before + 1)
    return page.locator(f"article[data-id='{cards.first.get_attribute('data-id')}']")


def wait_for_list(page: Page) -> None:
    """Until the page knows what there is."""
    expect(page.locator("section[aria-busy=false]")).to_be_visible()


def expect_moving(card: Locator) -> None:
    """The progress bar shows a value, and then another one."""
    bar = card.get_by_role("progressbar")
    expect(bar).to_have_attribute("aria-valuenow", re.compile(r"^[1-9]"))
    value = bar.get_attribute("aria-valuenow")
    assert value is not None
    expect(bar).not_to_have_attribute("aria-valuenow", value)


def expect_picture(card: Locator) -> None:
    """The finished picture is there and was really decoded."""
    expect(card).to_have_attribute("data-status", "completed")
    expect(card.get_by_role("img", name=PROMPT)).to_have_js_property("naturalWidth", 128)


def test_a_prompt_becomes_a_picture_while_the_visitor_watches(page: Page) -> None:
    wait_for_list(page)  # and so the stream of the page before the reload is not counted, however late it was opened
    streams: list[Request] = []
    page.on("request", lambda request: streams.append(request) if request.url.endswith("/v1/events") else None)
    page.reload()
    wait_for_list(page)
    card = ask(page, steps=LONG)
    expect_moving(card)
    expect(card.get_by_role("progressbar")).to_have_attribute("aria-valuetext", re.compile(rf"step \d+ of {LONG}"))
    expect(card.get_by_role("img", name=f"Preview: {PROMPT}")).to_have_js_property("complete", True)
    expect_picture(card)
    expect(page.get_by_role("status")).to_have_text(f"Picture ready: {PROMPT}")

    with page.expect_download() as download:
        card.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename.endswith(".png")
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert len(streams) == 1


def test_a_picture_under_way_is_canceled_and_says_where_it_stopped(page: Page) -> None:
    wait_for_list(page)
    card = ask(page, steps=LONG)
    expect_moving(card)
    card.get_by_role("button", name="Cancel").click()
    expect(card).to_have_attribute("data-status", "canceled")
    expect(card).to_contain_text(re.compile(rf"Stopped at step \d+ of {LONG}"))
    card.get_by_role("button", name="Try again").click()
    expect_picture(card)
    card.get_by_role("button", name="Delete").click()
    card.get_by_role("button", name="Delete").click()
    expect(card).to_have_count(0)


def test_a_reload_in_the_middle_goes_on_where_it_was(page: Page) -> None:
    wait_for_list(page)
    card = ask(page, steps=LONG)
    expect_moving(card)
    page.reload()
    expect_moving(card)
    expect_picture(card)


def test_a_restart_of_the_api_in_the_middle_loses_nothing(page: Page, service: Service, complaints: list[str]) -> None:
    wait_for_list(page)
    card = ask(page, steps=LONG)
    expect_moving(card)
    service.kill("api")
    expect_picture(card)
    complaints[:] = [complaint for complaint in complaints if OUTAGE not in complaint]


def test_two_pages_see_the_same(page: Page, open_page: OpenPage) -> None:
    other = open_page()
    wait_for_list(page)
    wait_for_list(other)
    identity = ask(page).get_attribute("data-id")
    seen = other.locator(f"article[data-id='{identity}']")
    expect_picture(seen)
    seen.get_by_role("button", name="Delete").click()
    seen.get_by_role("button", name="Delete").click()
    expect(page.locator(f"article[data-id='{identity}']")).to_have_count(0)


def test_a_double_click_asks_once(page: Page) -> None:
    posts: list[Request] = []
    page.on("request", lambda request: posts.append(request) if request.method == "POST" else None)
    wait_for_list(page)
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.get_by_role("button", name="Create").dblclick()
    expect(page.get_by_role("status")).to_have_text("Added to the queue.")
    assert len(posts) == 1


def test_what_the_server_refuses_is_said_at_its_field(page: Page, complaints: list[str]) -> None:
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.get_by_text("Advanced").click()
    page.get_by_role("spinbutton", name="Width").fill("100")
    page.get_by_role("button", name="Create").click()
    width = page.get_by_role("spinbutton", name="Width")
    expect(width).to_have_attribute("aria-invalid", "true")
    expect(width).to_be_focused()
    expect(width).to_have_accessible_description(re.compile(r"\w"))
    complaints[:] = [complaint for complaint in complaints if "422" not in complaint]


def test_the_page_speaks_persian_from_right_to_left(open_page: OpenPage) -> None:
    page = open_page(locale="fa-IR", viewport=PHONE)
    expect(page.locator("html[lang=fa][dir=rtl]")).to_be_attached()
    expect(page.get_by_role("heading", name="تصویر تازه")).to_be_visible()
    suggestion = page.get_by_role("group", name="برای نمونه").get_by_role("button").first
    prompt = suggestion.inner_text()
    suggestion.click()
    page.get_by_role("button", name="بساز").click()
    card = page.get_by_role("article", name=prompt).first
    expect(card.get_by_role("img", name=prompt, exact=True)).to_have_js_property("naturalWidth", 128)
    expect(card).to_contain_text("۱۲۸ × ۱۲۸")

    page.reload()
    expect(page.locator("html[lang=fa]")).to_be_attached()
    page.get_by_role("radio", name="English").check(force=True)
    expect(page.locator("html[lang=en][dir=ltr]")).to_be_attached()
    page.reload()
    expect(page.get_by_role("heading", name="New picture")).to_be_visible()


def test_everything_can_be_done_with_the_keyboard_alone(page: Page) -> None:
    wait_for_list(page)
    keyboard = page.keyboard
    keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the pictures")).to_be_focused()
    tab_to(page.get_by_role("textbox", name="Prompt"))
    keyboard.type(PROMPT)
    before = page.get_by_role("article").count()
    keyboard.press("Control+Enter")
    expect(page.get_by_role("article")).to_have_count(before + 1)
    card = page.locator(f"article[data-id='{page.get_by_role('article').first.get_attribute('data-id')}']")
    expect_picture(card)

    tab_to(card.get_by_role("button", name="Look at picture 1"))
    keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=PROMPT)
    expect(dialog).to_be_visible()
    keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(card.get_by_role("button", name="Look at picture 1")).to_be_focused()

    tab_to(card.get_by_role("button", name="Delete"))
    keyboard.press("Enter")
    expect(card.get_by_role("button", name="Keep")).to_be_focused()
    keyboard.press("Shift+Tab")
    keyboard.press("Enter")
    expect(card).to_have_count(0)
    expect(page.get_by_role("heading", name="Pictures")).to_be_focused()


def tab_to(target: Locator) -> None:
    """Press Tab until the element has the focus, as one does without a mouse; and the focus can be seen on it."""
    for _ in range(100):
        if target.evaluate("element => element === document.activeElement"):
            outline = target.evaluate("element => getComputedStyle(element).outlineStyle")
            assert outline != "none"
            return
        target.page.keyboard.press("Tab")
    pytest.fail(f"Tab does not lead to {target}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-GB", "fa-IR"])
def test_no_rule_of_accessibility_is_broken_also_not_of_contrast(open_page: OpenPage, scheme: str, locale: str) -> None:
    if not AXE.is_file():
        pytest.skip(f"AXE IS NOT THERE: {AXE} (npm ci in frontend/)")
    page = open_page(color_scheme=scheme, locale=locale, reduced_motion="reduce")
    wait_for_list(page)
    page.locator("form details summary").click()
    expect(page.locator("form fieldset button").first).to_be_visible()
    page.evaluate(AXE.read_text())
    violations = page.evaluate(
        "axe.run().then(({violations}) => violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
    )
    assert violations == []


def test_a_small_phone_needs_no_sideways_scrolling(open_page: OpenPage) -> None:
    page = open_page(viewport=SMALL_PHONE)
    wait_for_list(page)
    page.get_by_text("Advanced").click()
    assert page.evaluate("document.documentElement.scrollWidth") == SMALL_PHONE["width"]


def test_the_page_shows_itself_before_its_scripts_and_without_them(open_page: OpenPage) -> None:
    page = open_page(java_script_enabled=False)
    expect(page.get_by_role("heading", name="New picture")).to_be_visible()
    expect(page.get_by_role("button", name="Create")).to_be_visible()


def test_the_theme_follows_the_system_until_one_is_chosen(open_page: OpenPage) -> None:
    page = open_page(color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_role("radio", name="Light").check(force=True)
    expect(page.locator("html")).not_to_have_css("background-color", dark)
    page.reload()
    expect(page.locator("html")).not_to_have_css("background-color", dark)
