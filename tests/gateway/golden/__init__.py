"""Golden transcripts of streams, and how they are made: fixed clock, ids and sayings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afterwit.wire.model_text.render import Renderer
from tests.gateway.serving import TOOL, USER, serving

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "notes/todo.txt"}}\n</tool_call>'

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("Hello there.", {"stream_options": {"include_usage": True}}),
    "thought_and_calls": (f"<think>\nWhich?\n</think>\n\nTwo.\n{CALL}\n{CALL}", {"tools": [TOOL]}),
    "stop": ("One, two, three.", {"stop": ", t"}),
    "logprobs": ("Yes.", {"logprobs": True}),
    "cut": ("Hello there.", {"max_tokens": 2}),
}
"""What the engine says, and what is asked beside the message."""


def path_of(name: str) -> Path:
    return Path(__file__).parent / f"{name}.sse"


async def transcript(name: str, folder: Path, renderer: Renderer) -> bytes:
    """The bytes of one case's stream."""
    said, asked = CASES[name]
    async with serving(folder, renderer) as gateway:
        gateway.says[:] = [said]
        return (await gateway.ask(USER, stream=True, **asked)).content
