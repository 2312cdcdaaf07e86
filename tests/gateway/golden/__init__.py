"""Golden transcripts of streams, and how they are made: fixed clock, ids and sayings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afterwit.chat_format.render import Renderer
from tests.gateway.responding import FUNCTION
from tests.gateway.serving import TOOL, USER, serving

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "notes/todo.txt"}}\n</tool_call>'
TWO_CALLS = f"<think>\nWhich?\n</think>\n\nTwo.\n{CALL}\n{CALL}"

Asked = tuple[str, dict[str, Any]]
"""A path and the fields of a body."""


def chat(**more: Any) -> Asked:
    return "/chat/completions", {"messages": USER, **more}


def responses(**more: Any) -> Asked:
    return "/responses", {"input": "Open it.", **more}


CASES: dict[str, tuple[str, Asked]] = {
    "text": ("Hello there.", chat(stream_options={"include_usage": True})),
    "thought_and_calls": (TWO_CALLS, chat(tools=[TOOL])),
    "stop": ("One, two, three.", chat(stop=", t")),
    "logprobs": ("Yes.", chat(logprobs=True)),
    "cut": ("Hello there.", chat(max_tokens=2)),
    "responses_text": ("Hello.", responses(include=["message.output_text.logprobs"])),
    "responses_thought_and_calls": (TWO_CALLS, responses(tools=[FUNCTION])),
    "responses_cut": ("Hello there.", responses(max_output_tokens=2)),
}
"""The engine's response and the request of each case."""


def path_of(name: str) -> Path:
    return Path(__file__).parent / f"{name}.sse"


async def transcript(name: str, folder: Path, renderer: Renderer) -> bytes:
    """The bytes of one case's stream."""
    said, (path, body) = CASES[name]
    async with serving(folder, renderer) as gateway:
        gateway.says[:] = [said]
        answer = await gateway.http.post(path, json={"model": "tiny", "stream": True, **body})
        return answer.content
