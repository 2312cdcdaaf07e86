"""Turns of a session that wait for each other, from the requests to one version that learned from both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.running.serve import Runtime
from afterwit.running.train import learn
from tests.journey.conftest import PlainJudge, client

PATIENT = {"learner": {"batch": 3, "min_batch": 1, "turns_per_session_per_update": 3, "max_wait_s": 3600.0}}


async def test_three_turns_of_a_session_train_in_one_update_and_another_sessions_waits(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    """The learner runs in a thread here; `test_turn` runs it in its own process."""
    versions = Versions(root=tmp_path / "versions", base=model)
    async with Runtime(settings(PATIENT), tmp_path, ("gateway", "judge"), judge=PlainJudge()) as runtime:
        assert runtime.url is not None
        agent = client(runtime.url)

        async def talk(topic: str, replies: int) -> list[str]:
            messages, asked = [{"role": "user", "content": f"What do the {topic} say?"}], list[str]()
            for number in range(replies + 1):
                answer = await agent.chat.completions.create(
                    model="afterwit", messages=messages, max_tokens=6
                )
                asked.append(answer.id.removeprefix("chatcmpl-"))
                said = {"role": "assistant", "content": answer.choices[0].message.content}
                messages += [said, {"role": "user", "content": f"No, not that. {number}"}]
            return asked

        await talk("letters", 1)
        turns = (await talk("notes", 3))[:3]
        await asyncio.to_thread(
            learn,
            settings(PATIENT),
            tmp_path,
            stop=lambda: bool(versions.newest()),
            forever=True,
            wait=False,
        )
    assert versions.newest() == 1
    first = versions.get(1)
    assert first is not None
    assert sorted(first.turns) == sorted(turns)
    assert first.metrics["token_ratio"] > 1.5
