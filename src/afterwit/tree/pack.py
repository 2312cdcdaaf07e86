"""Rows as one packed sequence, and which part of it attends to which. Pure.

A trunk is the longest path down the trie. Branches leave it, and each is a trunk with branches of its own. A
trunk attends to itself causally. The branches that leave it at one node lie side by side, and attend to all
of the trunk up to that node. So there is one triangle per trunk, one rectangle per node with branches, and no
mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from afterwit.tree.trie import Ids, Node, grow


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
