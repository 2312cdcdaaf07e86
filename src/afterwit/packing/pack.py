"""Rows as one packed sequence, and the blocks of its attention. Pure.

A trunk is the longest path down the trie. Branches leave it, and each is a trunk with branches of its own. A
trunk attends to itself causally. The branches that leave it at one node lie side by side, and attend to all
of the trunk up to that node. So there is one triangle per trunk, one rectangle per node with branches, and no
mask.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Ids = tuple[int, ...]

WORTH = 1.2
"""Packing pays from this many tokens of the rows per token that runs; below, branches cost more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A row of ids. The hidden states from position `first` on are wanted."""

    ids: Ids
    first: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.ids):
            raise ValueError(f"states are wanted from {self.first} on, but there are {len(self.ids)} ids")


@dataclass(frozen=True, slots=True)
class Block:
    """The queries [begin, end) see the keys [key_begin, key_end): causally if both ranges are the same."""

    begin: int
    end: int
    key_begin: int
    key_end: int

    @property
    def causal(self) -> bool:
        return self.begin == self.key_begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One packed sequence."""

    ids: list[int]
    depths: list[int]
    """Each token's position in its row."""
    blocks: tuple[Block, ...]
    """Every token is a query of exactly one causal block."""
    at: list[list[int]]
    """For each path, the places of its wanted states in the sequence."""
    tokens: int
    """Tokens of all paths, if each ran as its own row."""

    @property
    def ratio(self) -> float:
        """Tokens of the paths per token that runs."""
        return self.tokens / len(self.ids)


def pack(paths: Sequence[Path]) -> Pack:
    """The paths as one sequence. Duplicates, and prefixes of other paths, cost nothing."""
    root, leaves = grow([path.ids for path in paths])
    layout = _Layout()
    for child in root.children:
        layout.place(child)
    return Pack(
        ids=layout.ids,
        depths=layout.depths,
        blocks=tuple(layout.blocks),
        at=[layout.positions(leaf, path.first) for leaf, path in zip(leaves, paths, strict=True)],
        tokens=sum(len(path.ids) for path in paths),
    )


@dataclass(slots=True)
class _Layout:
    """A packed sequence while it is built."""

    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    offsets: dict[Node, int] = field(default_factory=dict)

    def place(self, node: Node) -> None:
        """Append the trunk that begins with the node, then its branches, node by node."""
        begin, trunk = len(self.ids), list(_trunk(node))
        for part in trunk:
            self.offsets[part] = len(self.ids)
            self.ids += part.ids
            self.depths += range(part.begin, part.end)
        self.blocks.append(Block(begin, len(self.ids), begin, len(self.ids)))
        for part in trunk:
            here = len(self.ids)
            for child in part.children:
                if child not in self.offsets:
                    self.place(child)
            if len(self.ids) > here:
                until = self.offsets[part] + len(part.ids)
                self.blocks.append(Block(here, len(self.ids), begin, until))

    def positions(self, leaf: Node, first: int) -> list[int]:
        """The places of the tokens from depth `first` to the leaf's end."""
        found: list[range] = []
        node: Node | None = leaf
        while node is not None and node.end > first:
            offset = self.offsets[node] - node.begin
            found.append(range(offset + max(first, node.begin), offset + node.end))
            node = node.parent
        return [position for stretch in reversed(found) for position in stretch]


def _trunk(node: Node) -> Iterator[Node]:
    """The nodes of the longest path down."""
    yield node
    while node.children:
        node = max(node.children, key=lambda child: child.deepest)
        yield node


@dataclass(slots=True, eq=False)
class Node:
    """`ids` are at the depths from `begin` on, after those of its parents."""

    begin: int
    ids: Ids
    parent: Node | None
    children: list[Node] = field(default_factory=list)
    deepest: int = 0
    """The end of the longest row that passes through it."""

    @property
    def end(self) -> int:
        return self.begin + len(self.ids)


def grow(rows: Sequence[Ids]) -> tuple[Node, list[Node]]:
    """The trie's empty root, and for each row the node at whose end it ends."""
    root = Node(0, (), None)
    spine, leaves = [root], [root] * len(rows)
    previous: Ids = ()
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        ids = rows[index]
        leaves[index] = _insert(spine, ids, shared(previous, ids))
        previous = ids
    return root, leaves


def shared(one: Ids, other: Ids) -> int:
    """The length of the common prefix. Bisected, because comparing slices is far faster than single ids."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _insert(spine: list[Node], ids: Ids, common: int) -> Node:
    """Hang the next row in lexicographic order below `spine`, the nodes of the row before it."""
    while len(spine) > 1 and spine[-1].begin >= common:
        spine.pop()
    if spine[-1].end > common:
        spine.append(_split(spine.pop(), spine[-1], common))
    if len(ids) > common:
        spine.append(Node(common, ids[common:], spine[-1]))
        spine[-2].children.append(spine[-1])
    for node in spine:
        node.deepest = max(node.deepest, len(ids))
    return spine[-1]


def _split(node: Node, parent: Node, depth: int) -> Node:
    """A new parent for the node, with its ids before `depth`."""
    head = Node(node.begin, node.ids[: depth - node.begin], parent, [node], node.deepest)
    node.begin, node.ids, node.parent = depth, node.ids[depth - node.begin :], head
    parent.children[-1] = head
    return head


def ratio(rows: Sequence[Ids]) -> float:
    """Tokens of the rows per token of their trie."""
    seen: list[Ids] = []
    new = sum(_add(seen, ids) for ids in rows)
    return sum(map(len, rows)) / new if new else 1.0


def groups(rows: Sequence[Ids], limit: int) -> list[list[int]]:
    """Indices of neighbouring rows to pack together: besides its longest row, at most `limit` tokens.

    The turns of a session that only grows count as one row, the longest.
    """
    found: list[list[int]] = []
    seen: list[Ids] = []
    total = longest = 0
    for index, ids in enumerate(rows):
        total += _add(seen, ids)
        longest = max(longest, len(ids))
        if found and total - longest <= limit:
            found[-1].append(index)
        else:
            found.append([index])
            seen, total, longest = [ids], len(ids), len(ids)
    return found


def _add(seen: list[Ids], ids: Ids) -> int:
    """Insert the row among the sorted ones; returns how many of its tokens are new."""
    at = bisect_left(seen, ids)
    common = max((shared(ids, other) for other in seen[max(0, at - 1) : at + 1]), default=0)
    seen.insert(at, ids)
    return len(ids) - common


def inputs(packed: Pack, device: torch.device) -> dict[str, Any]:
    """Keyword arguments of the model's forward.

    The mask is all ones: without one, transformers reads positions that start again as separate rows, and
    builds a mask [L, L] that keeps them apart.
    """
    ids_1L = torch.tensor([packed.ids], device=device)
    return {
        "input_ids": ids_1L,
        "position_ids": torch.tensor([packed.depths], device=device),
        "attention_mask": torch.ones_like(ids_1L),
        "tree": packed.blocks,
        "use_cache": False,
    }
