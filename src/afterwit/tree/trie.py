"""A radix trie over token ids: one node per run of ids that the same rows share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Ids = tuple[int, ...]


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
