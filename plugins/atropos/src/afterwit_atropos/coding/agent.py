"""One rollout: the policy and its tools take turns, then the task's hidden tests decide.

The tests are run when the agent is done, in other boxes: while its commands run they are in no file,
environment or process that these could reach.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afterwit.api.serving import schema_error
from afterwit.api.turns import Feedback, Message, RequestError, ToolCall
from afterwit_atropos.coding.tasks import SOLUTION, Task, examine
from afterwit_atropos.episode import Attempt, Episode, Policy
from afterwit_atropos.reward import PASS, RewardWeights, efficiency, tool_usage
from afterwit_atropos.sandbox.box import Box, BoxEnded, Ran, open_box
from afterwit_atropos.sandbox.isolation import BoxLimits, Isolation

SYSTEM = (
    "You solve a programming task in Python. Work in the current folder with your tools, and leave the "
    f"solution in {SOLUTION}. Test it before you end. When it is done, say so without calling a tool."
)

UNREAD = "A tool call could not be read. Write it as the tools' description says."

CONTEXT_FULL = "context_length_exceeded"

ENDED_FOR = {
    "time": "out of time",
    "cpu": "out of CPU time",
    "memory": "out of memory",
    "processes": "too many processes",
    "output": "too much output",
    "files": "too many files",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """An agent's limits and system prompt, and the worth of what it does."""

    max_turns: int = 15
    box: BoxLimits = field(default_factory=BoxLimits)
    weights: RewardWeights = field(default_factory=RewardWeights)
    system: str = SYSTEM

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {self.max_turns}")


async def play(task: Task, policy: Policy, walls: Isolation, settings: AgentSettings) -> Attempt:
    """Let a policy solve a task, and examine its solution.

    Raises RequestError if the task does not fit the model, EngineError as it comes, and BoxEnded if a box
    does not come up. An agent that ends its own box has left no solution: if this raised, one that fails
    could lose its group.
    """
    opening = (Message(role="system", content=settings.system), Message(role="user", content=task.prompt))
    episode = Episode(opening, TOOLS, policy)
    async with open_box(walls, settings.box) as box:
        agent = _Coding(episode, box)
        await agent.run(settings.max_turns)
        solution = await _solution(box)
    verdict = await examine(task, solution, walls, settings.box)
    outcome = Feedback(reward=1 if verdict.correctness >= PASS else -1, text=verdict.text)
    return Attempt(
        rollout=episode.rollout(outcome),
        reward=settings.weights.reward(
            correctness=verdict.correctness,
            efficiency=efficiency(len(episode.turns), settings.max_turns),
            tool_usage=tool_usage(agent.tools),
        ),
    )


class _Coding:
    """A policy with its tools in a box."""

    def __init__(self, episode: Episode, box: Box) -> None:
        self._episode, self._box = episode, box
        self.tools: set[str] = set()
        """Those that were called as their schemas say."""

    async def run(self, max_turns: int) -> None:
        """Take turns until it is done, its commands have ended the box, or the conversation is too long."""
        for _ in range(max_turns):
            try:
                message = await self._episode.take_turn()
            except RequestError as error:
                if error.code != CONTEXT_FULL or not self._episode.turns:
                    raise
                return
            if not message.tool_calls and schema_error(message, TOOLS) is None:  # nor a call left unread
                return
            if not await self._answer(message):
                return

    async def _answer(self, message: Message) -> bool:
        """Append the tools' results, the turn's next state. Returns whether the box is still open."""
        messages, is_open = self._episode.messages, True
        if not message.tool_calls:
            messages.append(Message(role="user", content=UNREAD))
        for call in message.tool_calls:
            try:
                result = await self._use(call)
            except BoxEnded as error:
                result, is_open = f"error: {error}", False
            messages.append(Message(role="tool", content=result, tool_call_id=call.id, name=call.name))
        return is_open

    async def _use(self, call: ToolCall) -> str:
        """The tool's result; a mistake in the call is answered in words."""
        wrong = schema_error(Message(role="assistant", tool_calls=(call,)), TOOLS)
        if wrong is not None:
            return f"error: {wrong}"
        self.tools.add(call.name)
        try:
            return await _act(call.name, json.loads(call.arguments or "{}"), self._box)
        except OSError as error:
            return f"error: {error}"


async def _solution(box: Box) -> str | None:
    try:
        return await box.read(SOLUTION)
    except (OSError, BoxEnded):
        return None


def _tool(name: str, description: str, **parameters: str) -> Mapping[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


TOOLS: tuple[Mapping[str, Any], ...] = (
    _tool("terminal", "Run a shell command in the working folder.", command="The command."),
    _tool("read_file", "Read a text file.", path="Its path."),
    _tool("write_file", "Write a text file, new or replaced.", path="Its path.", content="The whole text."),
    _tool(
        "patch",
        "Replace a text that occurs exactly once in a file.",
        path="The file's path.",
        old="The text to replace.",
        new="What takes its place.",
    ),
)


async def _act(name: str, given: Mapping[str, str], box: Box) -> str:
    match name:
        case "terminal":
            return _result(await box.run(("bash", "-c", given["command"])))
        case "read_file":
            return await box.read(given["path"])
        case "write_file":
            await box.write(given["path"], given["content"])
            return f"wrote {given['path']}"
    return await _patch(given["path"], given["old"], given["new"], box)


async def _patch(path: str, old: str, new: str, box: Box) -> str:
    text = await box.read(path)
    found = text.count(old) if old else 0
    if found != 1:
        return f"error: the text to replace occurs {found} times in {path}, not once"
    await box.write(path, text.replace(old, new))
    return f"patched {path}"


def _result(ran: Ran) -> str:
    """A command's output, and how it ended, for the agent."""
    lines = [ran.output.rstrip("\n")] if ran.output.strip() else []
    if ran.cut_bytes:
        lines.append(f"[{ran.cut_bytes} more bytes of output]")
    if ran.ended_for is not None:
        lines.append(f"[ended: {ENDED_FOR[ran.ended_for]}]")
    elif ran.status != 0 or not lines:
        lines.append(f"[exit status {ran.status}]")
    return "\n".join(lines)
