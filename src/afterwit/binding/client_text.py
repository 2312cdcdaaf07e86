"""Text that clients add to a person's messages, to tool results, or to replies in the history."""

from __future__ import annotations

import re
from collections import deque

_BLOCKS = (
    ("<system-reminder>", "</system-reminder>"),
    ("<environment_details>", "</environment_details>"),
    ("<environment_context>", "</environment_context>"),
    ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"),
)

_STATE_TAG = re.compile(
    r"(?=[a-z]+[-_])(?:[a-z]+[-_])*(?:info|information|context|environment|env|reminder|system|state|metadata"
    r"|datetime|workspace)(?:[-_][a-z]+)*"
)
"""Names, of two words or more, of blocks in which clients report the state of the environment."""

_LONGEST_TAG = 64

_MOST_BLOCKS = 4
"""Most blocks that are taken from each end of a message."""

_PROMPTS = (
    "Continue if you have next steps, or stop and ask for clarification if you are unsure",
    "[Continue your last message without repeating its original content.]",
    "[Write the next reply only as ",
)
"""The beginnings of messages that clients send in a person's place to keep the model going."""

_HANDOFFS = (
    "Another language model started to solve this problem",
    "This session is being continued from a previous conversation",
    "The conversation history before this point was compacted",
    "[CONTEXT COMPACTION",
    "[Your active task list was preserved across context compression]",
)
"""The beginnings of messages that replace a compacted conversation."""

_HANDED_OVER = re.compile(
    r"[^.\n]{0,40}\b(?:conversation|context|history|session|chat|messages|transcript)\b"
    r"[^.\n]{0,60}\b(?:was|were|been|being)\s+(?:\w+\s+)?"
    r"(?:compacted|compressed|condensed|summari[sz]ed|truncated|continued)\b"
)
"""The first sentence of such a message, in other words."""

_SHORTEST_HANDOFF = 300
"""Characters of such a message, which contains a summary; people write less."""

_AIDER_FILES = (
    "I have *added these files to the chat*",
    "These files have been *added these files to the chat*",
    "Here are summaries of some files present in my git repository.",
    "I am working with you on code in a git repository.\nHere are summaries of some files",
    "Here are some READ ONLY files, provided for your reference.",
    "Don't try and edit any existing code without asking me to add the files to the chat!",
    "I am not sharing any files that you can edit yet.",
    "I am not sharing the full contents of any files with you yet.",
)
_AIDER_REMINDERS = (
    "\n\nTo suggest changes to a file you MUST return the entire content of the updated file.",
    "\n\n# *SEARCH/REPLACE block* Rules:",
    "\n\n# V4A Diff Format Rules:",
    "\n\n# File editing rules:\n\nReturn edits similar to unified diffs",
    "\n\nNEVER RETURN CODE!",
)

_AIDER_LANGUAGE = re.compile(r"Reply in [A-Z][a-z]+\.")

_AIDER_ASSENTS = frozenset(
    {
        "Ok, any changes I propose will be to those files.",
        "Ok, I won't try and edit those files without asking first.",
        "Ok, I will use that as the true, current contents of the files.",
        "Ok, I will use these files as references.",
        "Ok, based on your requests I will suggest which files need to be edited and then stop and wait for"
        " your approval.",
    }
)
"""Replies of the assistant that aider adds after the files in each request."""

_AIDER_NOTICES = (
    "I committed the changes with git hash ",
    "I updated the files.",
    "I edited the files myself.",
    "I made those changes to the files.",
)
"""The beginnings of aider's notices of edits. It adds an `Ok.` of the assistant after each."""

_PLACEHOLDERS = frozenset(
    {"(empty)", "(no content)", "[System: Empty message content sanitised to satisfy protocol]"}
)
"""The replacements of an empty reply in the requests of hermes, Claude Code and LiteLLM."""

_NAMES = r"(?:seed:)?(?:think|thinking(?:-content-[0-9a-f]{32})?|thoughts?|reasoning|reflection|scratchpad)"
THOUGHT_TAG = re.compile(rf"[<\[](/?)({_NAMES})[>\]]", re.IGNORECASE)
"""`<think>`, `[THINK]`, `<seed:think>` and the like; with a number, aider's."""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)

_SMOLAGENTS_CODE = re.compile(
    r"\nCalling tools:\n\[\{'id': 'call_\d+', 'type': 'function',"
    r" 'function': \{'name': 'python_interpreter', .*\Z",
    re.DOTALL,
)

_SMOLAGENTS_CLOSINGS = ("</code>", "```")
_OPENCLAW_STAMP = re.compile(r"\A\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}[^\]\n]*\] ")
_OPENCLAW_RUNTIME = re.compile(r"Runtime: agent=\S+ \| [^\n]*")


def without_passing_blocks(text: str) -> str:
    """The text without what changes from one request to the next: blocks, state at its ends, and all from
    aider's first reminder on or, without one, a last paragraph that names the language."""
    if text.startswith(_AIDER_FILES + _PROMPTS):
        return ""
    text = _without_state(_without_blocks(text, *_BLOCKS))
    ends = [end for reminder in _AIDER_REMINDERS if (end := text.find(reminder)) >= 0]
    if ends:
        return text[: min(ends)].removesuffix("\n")
    before, empty, last = text.rstrip("\n").rpartition("\n\n")
    return before if empty and _AIDER_LANGUAGE.fullmatch(last) else text


def _without_state(text: str) -> str:
    """The text without state blocks at its ends, unless nothing else is left."""
    said = whole = text.strip()
    if not (said.startswith("<") or said.endswith(">")):
        return text

    def tells_state(tag: str) -> bool:
        return len(tag) <= _LONGEST_TAG and _STATE_TAG.fullmatch(tag) is not None

    for _ in range(_MOST_BLOCKS):
        opening, _, name = said.removesuffix(">").rpartition("</")
        if said.endswith(">") and tells_state(name):
            before, found, _ = opening.rpartition(f"<{name}>")
            said = before.rstrip() if found else said
        name, closed, rest = said[1:].partition(">")
        if said.startswith("<") and closed and tells_state(name):
            _, found, after = rest.partition(f"</{name}>")
            said = after.strip() if found else said
    return text if not said or len(said) == len(whole) else said


def without_additions(text: str) -> str:
    """An assistant's text without its thinking and without the additions and placeholders of clients.

    smolagents ends code with the tag at which sampling stopped, and repeats the code as a call.
    """
    spoken = without_named_blocks(_THOUGHT.sub(" ", text), THOUGHT_TAG, " ")
    spoken = _SMOLAGENTS_CODE.sub("", spoken).rstrip()
    for closing in _SMOLAGENTS_CLOSINGS:
        spoken = spoken.removesuffix(closing)
    return "" if spoken.strip() in _AIDER_ASSENTS | _PLACEHOLDERS else spoken


def without_client_text(text: str) -> str:
    """The stripped text without the blocks, time stamps and run-time lines of known clients.

    Empty if the client wrote the whole text.
    """
    said = without_passing_blocks(text).strip()
    if is_handoff(said):
        return ""
    said = _OPENCLAW_STAMP.sub("", said, count=1)
    before, empty, last = said.rstrip().rpartition("\n\n")
    return before if empty and _OPENCLAW_RUNTIME.fullmatch(last) else said


def is_handoff(text: str) -> bool:
    """Whether a message replaces a conversation that its client compacted."""
    if text.startswith(_HANDOFFS):
        return True
    return len(text) >= _SHORTEST_HANDOFF and _HANDED_OVER.match(text) is not None


def is_boilerplate(said: str, before: str) -> bool:
    """Whether the client itself wrote this reply to the user message `before`."""
    said = said.strip()
    return said in _AIDER_ASSENTS or (said == "Ok." and before.startswith(_AIDER_NOTICES))


def _without_blocks(text: str, *marks: tuple[str, str]) -> str:
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
