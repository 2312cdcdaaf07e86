"""The agent's tools: a terminal and files, all in its box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from afterwit.apps.sandbox.box import Box, Ran
from afterwit.core.message import Message, ToolCall
from afterwit.wire.model_text.tool_schema import schema_error


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
ENDED_FOR = {
    "time": "out of time",
    "cpu": "out of CPU time",
    "memory": "out of memory",
    "processes": "too many processes",
    "output": "too much output",
    "files": "too many files",
}


def mistake(call: ToolCall) -> str | None:
    """Why a call is none of a tool; None if it is one."""
    return schema_error(Message(role="assistant", tool_calls=(call,)), TOOLS)


async def use(call: ToolCall, box: Box) -> str:
    """The tool's real answer; a mistake in the call is answered in words. Raises BoxEnded."""
    if (wrong := mistake(call)) is not None:
        return f"error: {wrong}"
    try:
        return await _act(call.name, orjson.loads(call.arguments or "{}"), box)
    except OSError as error:
        return f"error: {error}"


async def _act(name: str, given: Mapping[str, str], box: Box) -> str:
    match name:
        case "terminal":
            return said(await box.run(shell(given["command"])))
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


def shell(command: str) -> Sequence[str]:
    """The command line that runs a shell command."""
    return ("bash", "-c", command)


def said(ran: Ran) -> str:
    """What the agent hears of a command."""
    lines = [ran.output.rstrip("\n")] if ran.output.strip() else []
    if ran.cut_bytes:
        lines.append(f"[{ran.cut_bytes} more bytes of output]")
    if ran.ended_for is not None:
        lines.append(f"[ended: {ENDED_FOR[ran.ended_for]}]")
    elif ran.status != 0 or not lines:
        lines.append(f"[exit status {ran.status}]")
    return "\n".join(lines)
