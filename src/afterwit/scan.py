"""Scans over foreign text. Each takes time in proportion to the length of any text."""

from __future__ import annotations

import re
from collections import deque


def without_blocks(text: str, *marks: tuple[str, str]) -> str:
    """The text without its blocks. `marks`: opening and closing texts. An opening without a closing stays."""
    kept: list[str] = []
    at = 0
    begins = {mark: text.find(mark[0]) for mark in marks}
    while begun := {mark: begin for mark, begin in begins.items() if begin >= 0}:
        mark = min(begun, key=lambda each: begun[each])
        end = text.find(mark[1], begun[mark] + len(mark[0]))
        if end < 0:
            del begins[mark]
            continue
        kept.append(text[at : begun[mark]])
        at = end + len(mark[1])
        begins |= {each: text.find(each[0], at) for each, begin in begun.items() if begin < at}
    return "".join([*kept, text[at:]])


def without_named_blocks(text: str, tag: re.Pattern[str], instead: str) -> str:
    """The text with each block replaced by `instead`. `tag` matches opening and closing tags: group 1 is the
    slash of a closing one, group 2 the name. An opening tag without a closing one of its name stays."""
    tags = list(tag.finditer(text))
    closings: dict[str, deque[tuple[int, int]]] = {}
    for found in tags:
        if found[1]:
            closings.setdefault(found[2], deque()).append(found.span())
    kept: list[str] = []
    at = 0
    for found in tags:
        ends = closings.get(found[2], deque())
        if found[1] or found.start() < at:
            continue
        while ends and ends[0][0] < found.end():
            ends.popleft()
        if ends:
            kept += [text[at : found.start()], instead]
            at = ends[0][1]
    return "".join([*kept, text[at:]])
