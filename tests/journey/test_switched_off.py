"""Recording without judging, and judging without training: nothing is lost, and the status shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from afterwit.config import Settings
from afterwit.errors import SettingError
from afterwit.home.home import page_token
from afterwit.lifecycle import State
from afterwit.running.serve import Runtime
from tests.journey.conftest import PlainJudge, client, until

ASKED = {"role": "user", "content": "What does notes/todo.txt say?"}
REPLY = {"role": "user", "content": "No: you never read the file. Please read it first."}
OFF = {"enabled": False}


async def conversation(url: str) -> str:
    """Two turns; the id of the first."""
    agent = client(url)
    first = await agent.chat.completions.create(model="afterwit", messages=[ASKED])
    said = {"role": "assistant", "content": first.choices[0].message.content}
    await agent.chat.completions.create(model="afterwit", messages=[ASKED, said, REPLY])
    return first.id.removeprefix("chatcmpl-")


async def health(url: str, home: Path) -> dict[str, tuple[bool, str]]:
    async with httpx.AsyncClient(headers={"x-api-key": page_token(home)}) as http:
        page = (await http.get(url.removesuffix("/v1") + "/readyz")).json()
    assert page["status"] == "ready"
    return {stage["stage"]: (stage["ok"], stage["message"]) for stage in page["stages"]}


async def test_what_was_only_recorded_is_judged_once_the_judge_runs_and_waits_for_the_learner(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    async with Runtime(settings({"judge": OFF, "learner": OFF}), tmp_path, judge=PlainJudge()) as runtime:
        assert runtime.url is not None
        assert runtime.stages == ("gateway",)
        turn = await conversation(runtime.url)
        record = await runtime.store.call(lambda store: store.turn(turn))
        assert record.state is State.ANSWERED
        stages = await health(runtime.url, tmp_path)
        assert "judge.enabled = false" in stages["judge"][1]
        assert "learner.enabled = false" in stages["learn"][1]
    async with Runtime(settings({"learner": OFF}), tmp_path, judge=PlainJudge()) as runtime:
        assert runtime.stages == ("gateway", "judge")

        async def judged() -> bool | None:
            found = await runtime.store.call(lambda store: store.turn(turn))
            return True if found.state is State.JUDGED else None

        assert await until(judged)


def test_a_process_whose_only_stage_is_switched_off_is_refused(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=r"nothing is left to run: .*learner\.enabled"):
        Runtime(settings({"learner": OFF}), tmp_path, ("learn",))
