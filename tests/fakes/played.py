"""A rollout that an engine really sampled, with calls of a tool that a script dictates."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from afterwit.chat_format.render import Renderer
from afterwit.engines.embedded.engine import Script
from afterwit.engines.port import Engine, Generate
from afterwit.turn import Conversation, Message, Sampled, Sampling, ToolCall, Turn
from afterwit.verdict import Feedback
from afterwit_atropos.rollout import Rollout
from tests.fakes.rollouts import TOOL
from tests.fakes.turns import a_turn

TASK = "Read the file before you edit it."


def arguments(number: int) -> str:
    return f'{{"path": "notes/todo{number}.txt"}}'


def calls(renderer: Renderer) -> Script:
    """A script that calls the tool in every turn: it counts the turns by the calls in the prompt."""

    def script(prompt_ids: tuple[int, ...]) -> tuple[int, ...]:
        number = renderer.decode(prompt_ids).count("todo")
        text = f'<tool_call>\n{{"name": "terminal", "arguments": {arguments(number)}}}\n</tool_call>'
        return renderer.encode(text)

    return script


async def played(
    engine: Engine,
    renderer: Renderer,
    turns: int,
    *,
    temperature: float = 1.0,
    tool_s: float = 0.0,
    system: str | None = None,
    max_tokens: int = 64,
) -> Rollout:
    """`turns` turns, each with the log-probs and the version that the engine reported.

    `tool_s`: seconds that the tool takes.
    """
    messages = [Message(role="user", content=TASK)]
    if system is not None:
        messages.insert(0, Message(role="system", content=system))
    taken: dict[int, Turn] = {}
    for number in range(turns):
        await asyncio.sleep(tool_s)
        conversation = Conversation(messages=tuple(messages), tools=(TOOL,))
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature)
        prompt_ids = renderer.prompt_ids(conversation)
        async with aclosing(engine.generate(Generate(prompt_ids=prompt_ids, sampling=sampling))) as stream:
            steps = [step async for step in stream]
        call = ToolCall(id=f"call{number}", name="terminal", arguments=arguments(number))
        message = Message(role="assistant", tool_calls=(call,))
        taken[len(messages)] = a_turn(
            f"turn{number}",
            conversation=conversation,
            prompt_ids=prompt_ids,
            sampling=sampling,
            sampled=Sampled(
                ids=tuple(token for step in steps for token in step.ids),
                logprobs=tuple(value for step in steps for value in step.logprobs),
                versions=tuple(version for step in steps for version in step.versions),
                forced=tuple(forced for step in steps for forced in step.forced),
            ),
            message=message,
        )
        messages += [message, Message(role="tool", content=f"{number} lines of text", tool_call_id=call.id)]
    return Rollout(
        messages=tuple(messages), turns=taken, outcome=Feedback(reward=-1, text="1 of 2 tests failed")
    )
