"""Self-test of the judge: a question about a turn, which it must answer so that its vote can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.doctor.finding import Finding, expect, tested
from afterwit.apps.judge_prompts import judge_prompts
from afterwit.core.judging import JudgeView, evaluation_vote
from afterwit.core.message import Message
from afterwit.stages.judge.client import JudgeClient
from afterwit.stages.judge.settings import JudgeSettings

ASKED = JudgeView(
    request="What is two plus two? Answer with the number alone.",
    context=(),
    tools=(),
    response=Message(role="assistant", content="5"),
    next_state=(Message(role="user", content="No, that is wrong. It is 4."),),
)
"""A turn that any judge can judge."""
REMEDY = (
    "check judge.url, judge.model and judge.api_key_env; raise judge.max_tokens if it thinks; set"
    " judge.url to a stronger model if it is small. Turns wait for a judge that does not answer, and end as"
    " invalid_votes if its answers cannot be read"
)


def check(settings: Settings) -> Iterator[Finding]:
    """The judge at `judge.url`; nothing without one: the engine's own tests ask the served model."""
    if settings.judge.url is not None:
        yield finding(lambda: asyncio.run(_endpoint_judges(settings.judge)))


def finding(asked: Callable[[], str]) -> Finding:
    """What came of asking the judge."""
    return tested("judge", asked, remedy=REMEDY)


async def judges(judge: JudgeClient, settings: JudgeSettings) -> str:
    """Ask as the judge stage asks. Raises if no vote can be read from the answer."""
    prompts = judge_prompts(settings)
    answer = await judge.ask(
        prompts.evaluation(ASKED), temperature=settings.temperature, max_tokens=prompts.max_tokens, seed=0
    )
    name = settings.model if settings.url is not None else "the served model"
    vote = evaluation_vote(answer)
    said = f"{name} answers, but its {len(answer.words)} characters hold no vote"
    expect(vote.value is not None, said if answer.words.strip() else f"{name} answers with nothing")
    doubt = "" if vote.value == -1 else ": a better judge gives better hints"
    return f"{name} judges a wrong answer as {vote.value}{doubt}"


async def _endpoint_judges(settings: JudgeSettings) -> str:
    judge = build.http_judge(settings)
    try:
        return await judges(judge, settings)
    finally:
        await judge.close()
