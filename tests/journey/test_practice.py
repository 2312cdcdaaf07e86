"""One correction is practised by the running system: sampled, learned and served without another request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from afterwit.config import Settings
from afterwit.lifecycle import State
from afterwit.practice.lessons import Lesson
from afterwit.practice.table import lessons
from afterwit.running.serve import Runtime
from tests.journey.conftest import HINT, PlainJudge, client, until
from tests.journey.test_turn import ASKED, REPLY


async def test_one_correction_is_practised_until_its_updates_are_used_up(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    practice = {"enabled": True, "updates": 2, "max_tokens": 8}
    async with Runtime(settings({"practice": practice}), tmp_path, judge=PlainJudge()) as runtime:
        assert runtime.url is not None
        assert runtime.practises
        agent = client(runtime.url)
        first = await agent.chat.completions.create(model="afterwit", messages=[ASKED], seed=0)
        said = {"role": "assistant", "content": first.choices[0].message.content}
        await agent.chat.completions.create(model="afterwit", messages=[ASKED, said, REPLY])

        async def practised() -> Lesson | None:
            (lesson,) = await runtime.store.call(lambda store: store.lessons()) or (None,)
            done = lesson is not None and len(lesson.answers) >= 4
            over = done and all(each.state is not State.JUDGED for each in lesson.answers)
            return lesson if over else None

        lesson = await until(practised)
        turn = first.id.removeprefix("chatcmpl-")
        assert (lesson.words, [each.turn for each in lesson.said]) == (HINT, [turn])
        assert {each.prompt for each in lesson.answers} == {turn}
        assert all(each.gap is not None for each in lesson.answers)
        (row,) = await runtime.store.call(lessons)
        assert row.after is not None
        recorded = await runtime.store.call(lambda store: store.session_lines())
        assert [line.turns for line in recorded] == [2]  # the person's requests alone

        async def told() -> str | None:
            statuses = await runtime.store.call(lambda store: store.statuses())
            found = {each.stage: each.message for each in statuses}
            return found["practice"] if found.get("practice", "").startswith("1 lesson") else None

        assert await until(told)
