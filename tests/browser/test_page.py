"""The page in a real Chromium: it loads by itself, is accessible, lives, and obeys keyboard and buttons."""

from __future__ import annotations

import pytest

from afterwit.lifecycle import State
from afterwit.store import Filter
from afterwit.turn import Kind, Message
from afterwit.verdict import Feedback
from tests.browser.world import World
from tests.store.examples import add

pytestmark = [pytest.mark.browser, pytest.mark.slow]
VIEWS = (
    "",
    "/lessons/1",
    "/chat",
    "/overview",
    "/sessions",
    "/sessions?words=colour",
    "/sessions?words=nothing",
    "/sessions/session-00012",
    "/turns",
    "/turns/01k0000024",
    "/versions",
    "/versions/3",
)
VIEWS += ("/review", "/sources", "/judge", "/curves", "/nothing")
TAUGHT = Filter(state=State.JUDGED, kind=Kind.MAIN)
"""The turns that a person may still teach."""
RUN_AXE = """
    () => axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
        violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html.slice(0, 120)).join(" | ")}`))
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_every_view_is_accessible_fits_and_asks_nobody_else(
    browser, world: World, axe: str, scheme, width
):
    page = await browser.new_page(
        color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
    )
    await page.goto(world.entrance)
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    for view in VIEWS:
        await page.goto(f"{world.url}/ui{view}")
        await page.evaluate(axe)
        assert await page.evaluate(RUN_AXE) == [], view
        overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, view
    assert all(url.startswith(world.url) for url in asked)
    assert [text for text in said if "404" not in text] == []


async def test_nothing_breaks_the_policy(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    broken: list[str] = []
    page.on("console", lambda message: broken.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: broken.append(str(error)))
    for view in VIEWS[:-1]:
        await page.goto(f"{world.url}/ui{view}")
    assert broken == []


async def test_what_happens_appears_without_a_reload_and_hostile_words_stay_words(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/turns")
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    message = Message(role="assistant", content=hostile)
    await world.serving.store.call(lambda store: add(store, "zz", message=message, now=world.serving.clock()))
    await page.get_by_text("onerror", exact=False).first.wait_for()
    assert "owned" not in await page.title()
    assert await page.locator("main img").count() == 0


async def test_what_a_reader_opened_stays_open_while_the_page_renews_itself(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/turns/01k0000024")
    await page.locator("#after details summary").click()
    await page.evaluate("document.activeElement.blur()")
    await world.serving.store.call(
        lambda store: store.answer(
            "01k0000024", [Message(role="user", content="And now?")], answered_by=None, now=1.0
        )
    )
    await page.get_by_text("And now?").wait_for()
    assert await page.locator("#after details").get_attribute("open") is not None


async def test_it_is_steered_by_keyboard_alone(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/versions/3")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "content"
    sure = page.locator("details.sure summary")
    await sure.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_role("status").filter(has_text="learning was taken back").wait_for()


async def test_a_turn_is_taught_by_a_thumb_a_hint_and_a_better_answer(browser, world: World, axe: str):
    (newest,) = await world.serving.store.call(lambda store: store.turn_lines(TAUGHT, limit=1))
    page = await browser.new_page(bypass_csp=True)
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/sessions/{newest.session}")
    answer = page.locator(f"#turn-{newest.turn}")
    await answer.get_by_role("button", name="Bad answer").press("Enter")
    await page.get_by_role("status").filter(has_text="Recorded").wait_for()
    await answer.get_by_text("Say what it should have done").click()
    await answer.get_by_label("What it should have done").fill("Look before you answer.")
    await page.evaluate(axe)
    assert await page.evaluate(RUN_AXE) == []
    await answer.get_by_role("button", name="Teach this", exact=True).click()
    await page.get_by_role("status").filter(has_text="Recorded").wait_for()
    await answer.get_by_text("Edit this answer into a better one").click()
    better = answer.get_by_label("A better answer")
    assert await better.input_value() == (newest.message.content or "")
    await better.fill("I looked: all is well.")
    await answer.get_by_role("button", name="Teach this answer").click()
    await page.get_by_role("status").filter(has_text="Recorded").wait_for()
    record = await world.serving.store.call(lambda store: store.turn(newest.turn))
    assert record.next_state.feedback == Feedback(
        reward=-1, hint="Look before you answer.", correction="I looked: all is well."
    )


async def test_a_message_is_answered_on_the_page_and_its_answer_taught_in_place(
    browser, world: World, axe: str
):
    world.serving.says[:] = ["a <b>long</b> story.", "short."]
    page = await browser.new_page(bypass_csp=True)
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/chat")
    await page.get_by_label("Your message").fill("Tell me of the sea.")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Go on").wait_for()
    await page.get_by_text("a <b>long</b> story.").first.wait_for()
    await page.get_by_label("Your message").fill("Shorter, please.")
    await page.get_by_role("button", name="Send").click()
    await page.get_by_text("short.", exact=True).first.wait_for()
    await page.get_by_role("button", name="Good answer").last.wait_for()
    first, second = (await world.serving.records())[-2:]
    assert (first.turn.session, second.turn.parent) == (second.turn.session, first.turn.id)
    answer = page.locator(f"#turn-{second.turn.id}")
    await answer.get_by_text("Say what it should have done").click()
    await answer.get_by_label("What it should have done").fill("Say it in one line.")
    await page.evaluate(axe)
    assert await page.evaluate(RUN_AXE) == []
    await answer.get_by_role("button", name="Teach this", exact=True).click()
    await page.get_by_role("status").filter(has_text="Recorded").wait_for()


async def test_a_message_that_cannot_be_answered_leaves_the_reason_and_the_words(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/chat")
    await page.get_by_label("Your message").fill("Hello?")
    await page.context.set_offline(True)
    await page.keyboard.press("Enter")
    await page.get_by_role("alert").filter(has_text="Afterwit does not answer.").wait_for()
    assert await page.get_by_label("Your message").input_value() == "Hello?"


async def test_a_lesson_is_edited_and_undone_by_keyboard(browser, world: World, axe: str):
    page = await browser.new_page(bypass_csp=True)
    await page.goto(world.entrance)
    lesson = page.get_by_role("article").first
    await lesson.get_by_text("Edit", exact=True).click()
    await lesson.get_by_label("What the model should do").fill("Ask first.")
    await page.evaluate(axe)
    assert await page.evaluate(RUN_AXE) == []
    await lesson.get_by_role("button", name="Teach these words").press("Enter")
    await page.get_by_role("status").filter(has_text="taught in these words").wait_for()
    await page.get_by_role("heading", name="Ask first.").wait_for()
    await page.get_by_text("Undo this").click()
    await page.get_by_role("button", name="Undo it").press("Enter")
    await page.get_by_role("status").filter(has_text="unlearned next").wait_for()
    await page.get_by_text("it is being unlearned").wait_for()


async def test_learning_is_paused_and_resumed_by_buttons(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/overview")
    await page.get_by_text("Pause learning").click()
    await page.get_by_label("Reason").fill("guests")
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_text("No: learning is paused.").wait_for()
    await page.get_by_role("button", name="Resume learning").click()
    await page.get_by_text("Pause learning").wait_for()


async def test_a_browser_signs_in_with_a_key_and_out_again(browser, world: World, axe: str):
    await world.serving.add_key("admin", "admin")
    page = await browser.new_page(bypass_csp=True)
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui/turns/01k0000024")
    await page.evaluate(axe)
    assert await page.evaluate(RUN_AXE) == []
    await page.get_by_label("API key").fill("aw-wrong")
    await page.keyboard.press("Enter")
    await page.get_by_role("alert").wait_for()
    await page.get_by_label("API key").fill("aw-admin")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("button", name="Sign out admin").wait_for()
    assert page.url == f"{world.url}/ui/turns/01k0000024"
    assert await page.evaluate("document.cookie") == ""
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("API key").wait_for()


async def test_a_lost_gateway_is_said(browser, world: World):
    page = await browser.new_page()
    await page.goto(world.entrance)
    await page.goto(f"{world.url}/ui")
    await page.context.set_offline(True)
    await page.get_by_text("What you see may be old").wait_for()
    await page.context.set_offline(False)
    await page.get_by_text("What you see may be old").wait_for(state="hidden")
