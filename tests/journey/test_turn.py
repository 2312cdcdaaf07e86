"""One turn from the request to the weights, through every stage, with a client that is not ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.lifecycle import State
from afterwit.practice.lessons import Lesson
from afterwit.practice.table import lessons
from afterwit.running.serve import Runtime
from afterwit.store import Record
from tests.journey.conftest import HINT, PlainJudge, client, until

ASKED = {"role": "user", "content": "What does notes/todo.txt say?"}
REPLY = {"role": "user", "content": "No: you never read the file. Please read it first."}


async def nothing(runtime: Runtime, turn: str) -> None:
    """Leave it at that."""


async def whole_loop(
    settings: Settings,
    model: Path,
    home: Path,
    *,
    weights: str,
    then: Callable[[Runtime, str], Awaitable[None]] = nothing,
) -> None:
    """A turn is served, judged and trained, and the new weights, in a file of this name, are served."""
    async with Runtime(settings, home, judge=PlainJudge()) as runtime:
        assert runtime.url is not None
        agent = client(runtime.url)
        first = await agent.chat.completions.create(model="afterwit", messages=[ASKED], seed=0)
        assert first.system_fingerprint == "v0"
        said = {"role": "assistant", "content": first.choices[0].message.content}
        second = await agent.chat.completions.create(model="afterwit", messages=[ASKED, said, REPLY])
        turn = first.id.removeprefix("chatcmpl-")

        async def trained() -> Record | None:
            record = await runtime.store.call(lambda store: store.turn(turn))
            return record if record.state is State.TRAINED else None

        record = await until(trained)
        assert record.next_state is not None
        assert [message.content for message in record.next_state.messages] == [REPLY["content"]]
        assert record.verdict is not None
        assert (record.verdict.reward, record.verdict.hints) == (-1, (HINT,))
        assert record.trained_in == (1,)
        assert len(record.turn.sampled.ids) == first.usage.completion_tokens
        assert len(record.turn.prompt_ids) == first.usage.prompt_tokens

        child = await runtime.store.call(lambda store: store.turn(second.id.removeprefix("chatcmpl-")))
        assert (child.turn.parent, child.turn.session) == (turn, record.turn.session)

        async def served() -> str | None:
            again = await agent.chat.completions.create(model="afterwit", messages=[ASKED], max_tokens=4)
            return again.system_fingerprint if again.system_fingerprint != "v0" else None

        await then(runtime, turn)  # before further requests of the same words, which would be practised too
        await until(served)
    versions = Versions(root=home / "versions", base=model)
    begun, first_update, *_ = [version.turns for version in versions.all()]
    assert (begun, first_update[0]) == ((), turn)  # with what was practised while the learner started
    assert (versions.weights(1) / weights).exists()


async def practised(runtime: Runtime, turn: str) -> None:
    """The correction of the turn is answered and learned without another request until its updates are used
    up."""
    assert runtime.practises

    async def over() -> Lesson | None:
        (lesson,) = await runtime.store.call(lambda store: store.lessons()) or (None,)
        done = lesson is not None and len(lesson.answers) >= 2
        return lesson if done and all(each.state is not State.JUDGED for each in lesson.answers) else None

    lesson = await until(over)
    assert (lesson.words, [each.turn for each in lesson.corrections]) == (HINT, [turn])
    assert turn in {each.prompt for each in lesson.answers}
    assert all(each.gap is not None for each in lesson.answers)
    (row,) = await runtime.store.call(lessons)
    assert row.after is not None
    session = (await runtime.store.call(lambda store: store.turn(turn))).turn.session
    recorded = await runtime.store.call(lambda store: store.session_lines())
    assert [line.turns for line in recorded if line.session == session] == [2], "the person's requests alone"

    async def told() -> bool | None:
        statuses = await runtime.store.call(lambda store: store.statuses())
        found = {each.stage: each.message for each in statuses}
        return found.get("practice", "").startswith("1 lesson") or None

    assert await until(told)


async def test_what_an_adapter_learned_from_a_turn_and_in_practice_is_served_after_a_restart_too(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    below = {
        "learner": {"teacher": "ema"},
        "practice": {"enabled": True, "updates": 1, "max_tokens": 8, "synthetic": 0.0},
    }
    await whole_loop(settings(below), model, tmp_path, weights="adapter_model.safetensors", then=practised)
    newest = Versions(root=tmp_path / "versions", base=model).newest()
    assert newest > 1, "practice is learned"
    async with Runtime(settings(), tmp_path, ("gateway",)) as again:
        assert again.url is not None
        answer = await client(again.url).chat.completions.create(model="afterwit", messages=[ASKED])
        assert answer.system_fingerprint == f"v{newest}"


@pytest.mark.slow  # a second learner process; the adapter's goes the same way
async def test_full_weights_are_served_after_a_restart_while_the_learner_says_what_to_set(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    await whole_loop(settings({"learner": {"lora_rank": 0}}), model, tmp_path, weights="model.safetensors")
    async with Runtime(settings(), tmp_path, judge=PlainJudge()) as again:
        assert again.url is not None
        answer = await client(again.url).chat.completions.create(model="afterwit", messages=[ASKED])
        assert answer.system_fingerprint == "v1"

        async def refused() -> str | None:
            statuses = await again.store.call(lambda store: store.statuses())
            return next((each.message for each in statuses if each.stage == "learn" and not each.ok), None)

        assert "set learner.lora_rank = 0 to continue from it" in await until(refused)
