"""Rows as one packed sequence, and the blocks of its attention. Pure.

A trunk is the longest path down the trie. Branches leave it, and each is a trunk with branches of its own. A
trunk attends to itself causally. The branches that leave it at one node lie side by side, and attend to all
of the trunk up to that node. So there is one triangle per trunk, one rectangle per node with branches, and no
mask.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch

from afterwit.text import prefix_length

Ids = tuple[int, ...]

WORTH = 1.2
"""Packing pays from this many tokens of the rows per token that runs; below, branches cost more."""


class Path(NamedTuple):
    """A row of ids. The hidden states from position `first` on are wanted."""

    ids: Ids
    first: int


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
    ids: list[int]
    depths: list[int]
    """Each token's position in its row."""
    blocks: tuple[Block, ...]
    """Every token is a query of exactly one causal block."""
    at: list[list[int]]
    """For each path, the places of its wanted states in the sequence."""


def pack(paths: Sequence[Path]) -> Pack:
    """The paths as one sequence. Duplicates, and prefixes of other paths, cost nothing."""
    ids: list[int] = []
    depths: list[int] = []
    blocks: list[Block] = []
    at: list[list[int]] = [[] for _ in paths]

    def place(rows: Iterable[int], depth: int) -> None:
        """Append rows in lexicographic order, of which the first `depth` tokens have their places."""
        rows = list(rows)
        trunk, begin = max((paths[row].ids for row in rows), key=len), len(ids)
        ids.extend(trunk[depth:])
        depths.extend(range(depth, len(trunk)))
        blocks.append(Block(begin, len(ids), begin, len(ids)))
        branches: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            path, leaves = paths[row], prefix_length(paths[row].ids, trunk)
            at[row].extend(range(begin + max(path.first - depth, 0), begin + leaves - depth))
            if leaves < len(path.ids):
                branches[leaves].append(row)
        for leaves, side_by_side in sorted(branches.items()):
            here = len(ids)
            place_apart(side_by_side, leaves)
            blocks.append(Block(here, len(ids), begin, begin + leaves - depth))

    def place_apart(rows: Iterable[int], depth: int) -> None:
        """Append rows that may differ from this depth on, one branch after the other."""
        for _, branch in groupby(rows, key=lambda row: paths[row].ids[depth]):
            place(branch, depth)

    place_apart(sorted(range(len(paths)), key=lambda row: paths[row].ids), 0)
    return Pack(ids=ids, depths=depths, blocks=tuple(blocks), at=at)


def ratio(rows: Sequence[Ids]) -> float:
    """Tokens of the rows per token of their trie."""
    seen: list[Ids] = []
    new = sum(_add(seen, ids) for ids in rows)
    return sum(map(len, rows)) / new if new else 1.0


def together(rows: Sequence[Ids], limit: int, *, in_order: bool = False) -> list[list[int]] | None:
    """Indices of rows to pack together, sorted by their ids or `in_order`; None: packing does not pay."""
    if len(rows) < 2 or ratio(rows) < WORTH:
        return None
    order = range(len(rows)) if in_order else sorted(range(len(rows)), key=rows.__getitem__)
    return [[order[at] for at in each] for each in groups([rows[at] for at in order], limit)]


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
    common = max((prefix_length(ids, other) for other in seen[max(0, at - 1) : at + 1]), default=0)
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
