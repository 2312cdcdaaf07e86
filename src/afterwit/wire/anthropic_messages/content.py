"""Content of an Anthropic message: a string or a list of blocks, and what each type of block says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from afterwit.wire.fields import as_list, as_object, as_text
from afterwit.wire.omitted import omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block and its place in the request."""

    kind: str
    data: Mapping[str, Any]
    where: str

    def text(self, name: str) -> str:
        """A field that must be a string."""
        return as_text(self.data.get(name), f"{self.where}.{name}")


def parse_blocks(value: Any, where: str) -> list[Block]:
    """The blocks of a content; a string is one block of text, null is none."""
    if value is None:
        return []
    if isinstance(value, str):
        return [_block(value, where)]
    return [_block(part, f"{where}[{index}]") for index, part in enumerate(as_list(value, where))]


def count_blocks(contents: Iterable[Any]) -> int:
    """Blocks of contents and of the tool results among them. Counting is much faster than reading."""
    lists = [content for content in contents if isinstance(content, list)]
    inner = [block.get("content") for content in lists for block in content if isinstance(block, dict)]
    return sum(map(len, lists)) + sum(len(content) for content in inner if isinstance(content, list))


def _block(value: Any, where: str) -> Block:
    data = {"type": "text", "text": value} if isinstance(value, str) else as_object(value, where)
    return Block(kind=as_text(data.get("type"), f"{where}.type"), data=data, where=where)


def text_of(block: Block) -> str | None:
    """What a block says, None for blocks that say nothing to this model; or that it was left out."""
    if block.kind in _TEXTS:
        return _TEXTS[block.kind](block)
    if block.kind in _SILENT or block.kind.endswith(_SERVER_RESULT):
        return None
    return omitted(block.kind)


def joined(blocks: list[Block]) -> str:
    """The texts of blocks, each on lines of its own."""
    return "\n".join(texts_of(blocks))


def texts_of(blocks: list[Block]) -> list[str]:
    """What each block says that says anything."""
    return [text for text in map(text_of, blocks) if text is not None]


def _document(block: Block) -> str:
    """A document's text. Its file, if it is one, is left out."""
    where = f"{block.where}.source"
    source = as_object(block.data.get("source"), where)
    match source.get("type"):
        case "text":
            return as_text(source.get("data"), f"{where}.data")
        case "content":
            return _plain(source.get("content"), f"{where}.content")
        case _:
            return omitted(block.kind)


def _found(block: Block) -> str:
    """A search result: where it was found, and its text."""
    heads = (block.data.get(name) for name in ("title", "source"))
    texts = [head for head in heads if isinstance(head, str)]
    return "\n".join([*texts, _plain(block.data.get("content"), f"{block.where}.content")])


def _plain(value: Any, where: str) -> str:
    """The text of a content inside a block. What else it holds is left out, however deep it nests."""
    blocks = parse_blocks(value, where)
    return "\n".join(block.text("text") if block.kind == "text" else omitted(block.kind) for block in blocks)


_TEXTS: dict[str, Callable[[Block], str]] = {
    "text": lambda block: block.text("text"),
    "document": _document,
    "search_result": _found,
}
_SILENT = frozenset(
    {"thinking", "redacted_thinking", "server_tool_use", "tool_reference", "container_upload"}
)
"""Thought is read where the assistant speaks. The others are what Anthropic's own servers add."""
_SERVER_RESULT = "_tool_result"
"""The end of the type of a result of Anthropic's own tools, such as `web_search_tool_result`."""
