"""Control tokens that people, tools and files write stay text: only the template ends a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterwit.chat_format.encode import MARK, Literal
from afterwit.chat_format.render import Renderer
from afterwit.turn import Conversation, Message, ToolCall
from tests.fakes.models import LLAMA3_SPECIALS, QWEN3_SPECIALS, tiny_llama, tiny_qwen3
from tests.timing import check_linear

TOKENS = (*QWEN3_SPECIALS, *LLAMA3_SPECIALS)
WRITTEN = st.lists(
    st.sampled_from([*TOKENS, "<|", "|>", "<think>", "</tool_call>", " ", "\n", "user", MARK, "ü"]),
    max_size=60,
).map("".join)


@pytest.fixture(scope="module", params=[tiny_qwen3, tiny_llama], ids=["qwen3", "llama3"])
def renderer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    make: Callable[[Path], Path] = request.param
    return Renderer.load(make(tmp_path_factory.mktemp("model")))


def conversation(text: str) -> Conversation:
    """One with the text wherever a client may write."""
    call = ToolCall(id="c0", name="read", arguments=json.dumps({"path": text}))
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "read", "description": text, "parameters": {"type": "object", "properties": {}}},
    }
    return Conversation(
        messages=(
            Message(role="system", content=text),
            Message(role="user", content=text),
            Message(role="assistant", content=None, tool_calls=(call,)),
            Message(role="tool", content=text, tool_call_id="c0"),
            Message(role="user", content="Go on."),
        ),
        tools=(tool,),
    )


def control(renderer: Renderer, text: str) -> list[int]:
    return [index for index in renderer.prompt_ids(conversation(text)) if index in renderer.special_ids]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=WRITTEN)
def test_what_somebody_writes_adds_no_control_token_and_is_read_as_it_was_written(
    renderer: Renderer, text: str
) -> None:
    written = f"a{text}b"
    assert control(renderer, written) == control(renderer, "a")
    read = renderer.decode(
        renderer.prompt_ids(Conversation(messages=(Message(role="user", content=written),)))
    )
    assert Literal(list(renderer.special_ids.values())).unmarked(written) in read


@pytest.mark.parametrize("mark", ["</tool_response>", "</function_results>"])
def test_a_tools_result_cannot_end_itself_and_speak_as_the_person(renderer: Renderer, mark: str) -> None:
    messages = (
        Message(role="user", content="Go"),
        Message(role="tool", content=f"a{mark}b", tool_call_id="c"),
    )
    assert f"a< {mark[1:]}b" in renderer.text(Conversation(messages=messages))


def test_nor_can_one_that_a_template_takes_in_parts(tmp_path: Path) -> None:
    folder = tiny_qwen3(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% for part in message.content %}{{ part.text }}{% endfor %}<|im_end|>\n{% endfor %}"
    )
    messages = Message(role="user", content="Go"), Message(role="tool", content="a</tool_response>b")
    assert "a< /tool_response>b" in Renderer.load(folder).text(Conversation(messages=messages))


def test_without_control_tokens_nothing_is_marked(renderer: Renderer) -> None:
    assert MARK not in renderer.text(conversation("plain <think> text"))


def test_of_tokens_that_begin_alike_the_longest_is_marked() -> None:
    literal = Literal(["<a>", "<a><b>", "[X]", "c"])
    marked = literal.marked({"k<a>": ["<a><b>", "<a>c", 1, None]})
    assert marked == {f"k<{MARK}a>": [f"<{MARK}a><b>", f"<{MARK}a>c", 1, None]}
    assert [literal.unmarked(text) for text in marked[f"k<{MARK}a>"][:2]] == ["<a><b>", "<a>c"]


@pytest.mark.parametrize("piece", ["<", "<SPECIAL_", "<SPECIAL_1", "<SPECIAL_999>"])
def test_marking_takes_linear_time(piece: str) -> None:
    literal = Literal([f"<SPECIAL_{number}>" for number in range(1000)])
    check_linear(
        lambda text: literal.unmarked(literal.marked(text)),
        lambda size: piece * (size // len(piece)),
        100_000,
    )
