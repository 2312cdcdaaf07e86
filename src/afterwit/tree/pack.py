"""Rows as one sequence: trunk, branches, and which stretch of it attends to which. Pure.

A trunk is the longest way down the trie; what leaves it on the way hangs off it as branches, each of them a
trunk in its turn. A trunk attends to itself causally, and all that leaves it at one place, which lies side by
side, attends to the whole of it up to there: a triangle per trunk and a rectangle per place, and no mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from afterwit.tree.trie import Ids, Node, grow


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A row of ids and the first of them whose state is wanted; those of all after it are, too."""

    ids: Ids
    first: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.ids):
            raise ValueError(f"states are wanted from {self.first} on, but there are {len(self.ids)} ids")


@dataclass(frozen=True, slots=True)
class Block:
    """The queries [begin, end) see the keys [seen, until): all of them, or causally where both are one."""

    begin: int
    end: int
    seen: int
    until: int

    @property
    def causal(self) -> bool:
        return self.begin == self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One packed sequence."""

    ids: list[int]
    depths: list[int]
    """Of each token in its row: its position."""
    blocks: tuple[Block, ...]
    """Every token is a query of exactly one causal block."""
    at: list[list[int]]
    """For each path, where the states wanted of it are. The state before a branch is its parent's last."""
    tokens: int
    """Of all paths, had each its own row."""

    @property
    def ratio(self) -> float:
        """Tokens asked for per token to run."""
        return self.tokens / len(self.ids)


def pack(paths: Sequence[Path]) -> Pack:
    """The paths as one sequence. Duplicates and prefixes of others cost nothing."""
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
    """A sequence on its way."""

    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    offsets: dict[Node, int] = field(default_factory=dict)

    def place(self, node: Node) -> None:
        """Append the trunk that begins with the node, then what leaves it, place by place."""
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
        """Where the tokens from depth `first` to the leaf's end are."""
        found: list[range] = []
        node: Node | None = leaf
        while node is not None and node.end > first:
            offset = self.offsets[node] - node.begin
            found.append(range(offset + max(first, node.begin), offset + node.end))
            node = node.parent
        return [position for stretch in reversed(found) for position in stretch]


def _trunk(node: Node) -> Iterator[Node]:
    """The nodes of the longest way down."""
    yield node
    while node.children:
        node = max(node.children, key=lambda child: child.deepest)
        yield node
