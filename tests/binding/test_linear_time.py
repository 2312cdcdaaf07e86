"""Foreign text of any length and shape costs time in proportion to its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from afterwit.binding.bind import bind
from afterwit.binding.client_text import is_boilerplate, without_additions, without_client_text
from afterwit.binding.evidence import Candidate, Recent
from afterwit.binding.request import IncomingRequest, Shape, canonical_json, client_session_of, read_request
from afterwit.judging.voting import outside_thoughts, quotes, select_candidates, speaks_of_hints
from afterwit.turn import Conversation, Kind, Message, ToolCall, turn_of_call
from tests.fakes.judge import parse_evaluation, parse_hint
from tests.timing import check_linear

SLOWER = ("request", "binding", "quotation", "hint talk", "call id")
"""Readers that repeat what others do, or do more for each character: a piece is tried in one frame less."""
SIZE = 2_000
"""Characters of the smaller text."""
PIECES = (
    " ",
    "\n",
    "a",
    "1",
    '"',
    "\\",
    "[",
    "{",
    "a ",
    "a.",
    "hint/",
    "Hint ",
    "<system-reminder>",
    "</system-reminder>",
    "<system-reminder></system-reminder>",
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
    "<think>",
    "</think>",
    "<think></think>",
    f"<thinking-content-{'a' * 32}>",
    f"<thinking-content-{'a' * 32}></thinking-content-{'b' * 32}>",
    "\n\nRuntime: agent=",
    "\n\nRuntime: agent=x | ",
    "\n\nReply in English.\n",
    "\nCalling tools:\n[{'id': 'call_1",
    "[Fri 2026-11-20 23:03",
    "call_",
    "call" + "0" * 28,
    ":1",
    "Ok.",
    "\\boxed{",
    "\\boxed{1}",
    "[HINT_START]",
    "[HINT_END]",
    "[HINT_START]a[HINT_END]",
    "读",
    "\ud800",
)
FRAMES = (
    ("", ""),
    ("x", "\nx"),
    ("\n\nRuntime: agent=x | ", "\nx"),
    ("\n\nReply in A", "x"),
    ("[Fri 2026-11-20 23:03", "x"),
    ("<think>", "x"),
    ("\\boxed{1}[HINT_START]", ""),
    ('{"a": ', "}"),
    ("1.", ""),
)


def _conversation(text: str) -> Conversation:
    call = ToolCall(id=text, name=text, arguments=text)
    return Conversation(
        messages=(
            Message(role="system", content=text),
            Message(role="user", content=text),
            Message(role="assistant", content=text, tool_calls=(call,)),
            Message(role="tool", content=text, tool_call_id=text),
        )
    )


def _read(text: str) -> IncomingRequest:
    session = client_session_of({"x-codex-turn-metadata": text}, {"session_id": text})
    return read_request(turn="t", scope=text, conversation=_conversation(text), client=session, streamed=True)


def _bind(text: str) -> object:
    """Against a side turn and a conversation that say almost the same."""
    stored = Candidate(
        turn="s",
        session="s",
        parent=None,
        prompt_hash=b"p",
        full_hash=b"f",
        depth=1,
        full_depth=2,
        delivered=True,
        kind=Kind.SIDE,
        created=0.0,
        children=0,
        reply=text[1:] + "!",
    )
    said = tuple(text[:length] + "!" for length in range(17, 200, 20))
    incoming = _read(text)
    return bind(
        incoming,
        [stored],
        [
            Recent(
                session="r",
                turn="r",
                texts=said,
                asked=said,
                shape=Shape(tools=frozenset("a"), streamed=True),
            )
        ],
    )


READERS: dict[str, Callable[[str], Any]] = {
    "client text": without_client_text,
    "a block of state": lambda text: without_client_text(f"a<info-msg>{text}</info-msg>"),
    "a block's name": lambda text: without_client_text(f"<{text}>a</{text}>"),
    "a long name of state": lambda text: without_client_text(f"a</info{'-info' * (len(text) // 5)}->"),
    "additions": without_additions,
    "boilerplate": lambda text: is_boilerplate(text, text),
    "arguments": canonical_json,
    "call id": turn_of_call,
    "request": _read,
    "binding": _bind,
    "thinking": outside_thoughts,
    "evaluation": parse_evaluation,
    "hint": lambda text: parse_hint(text, [text], quote_words=8),
    "hint talk": speaks_of_hints,
    "quotation": lambda text: quotes(text + " end", [text, text + " other"], words=8),
}


def frames_of(number: int, count: int) -> list[tuple[str, str]]:
    """No frame, and `count` of the others, which change from piece to piece."""
    return [FRAMES[0], *(FRAMES[1 + (number + 3 * other) % (len(FRAMES) - 1)] for other in range(count))]


@pytest.mark.parametrize("name", READERS)
def test_any_text_is_read_in_linear_time(name: str) -> None:
    for number, piece in enumerate(PIECES):
        for before, after in frames_of(number, 1 if name in SLOWER else 2):

            def make(size: int, piece: str = piece, before: str = before, after: str = after) -> str:
                return before + piece * max(size // len(piece), size // 16) + after

            check_linear(READERS[name], make, SIZE)


def test_many_messages_are_read_in_linear_time() -> None:
    def make(count: int) -> Conversation:
        said = [
            Message(role=role, content=f"<think>{n}</think>{n} call{'0' * 28}")
            for n in range(count)
            for role in ("user", "assistant", "tool")
        ]
        return Conversation(messages=tuple(said))

    def read(conversation: Conversation) -> object:
        session = client_session_of({}, {})
        return read_request(turn="t", scope="s", conversation=conversation, client=session, streamed=True)

    check_linear(read, make, 400)


def test_many_hints_are_sorted_out_in_linear_time() -> None:
    def select(hints: list[str]) -> object:
        return select_candidates(hints, max_candidates=3, longest=False)

    check_linear(select, lambda count: [f"hint {n}" for n in range(count)], 5000)
