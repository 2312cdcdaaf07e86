"""Text that clients put under a person's name or into tool results: no reaction of anybody's."""

from __future__ import annotations

import re

_BLOCKS = re.compile(
    r"<system-reminder>.*?</system-reminder>"
    r"|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
    re.DOTALL,
)
_AIDER_FILES = re.compile(
    r"(?:I have \*added these files to the chat\*|These files have been \*added these files to the chat\*"
    r"|Here are summaries of some files present in my git repository\."
    r"|I am working with you on code in a git repository\.\nHere are summaries of some files"
    r"|Here are some READ ONLY files, provided for your reference\."
    r"|Don't try and edit any existing code without asking me to add the files to the chat!"
    r"|I am not sharing any files that you can edit yet\."
    r"|I am not sharing the full contents of any files with you yet\.)"
)
_AIDER_REMINDER = re.compile(
    r"\n\n\n?(?:To suggest changes to a file you MUST return the entire content of the updated file\."
    r"|# \*SEARCH/REPLACE block\* VoteRules:|# V4A Diff Format VoteRules:"
    r"|# File editing rules:\n\nReturn edits similar to unified diffs|NEVER RETURN CODE!).*\Z"
    r"|\n\nReply in [A-Z][a-z]+\.\n*\Z",
    re.DOTALL,
)
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
"""What aider has the assistant say to the files that it shows with each request."""
_AIDER_NOTICES = (
    "I committed the changes with git hash ",
    "I updated the files.",
    "I edited the files myself.",
)
"""What aider tells of edits; it has the assistant say `Ok.` to it."""
_AIDER_THOUGHT = re.compile(r"<(thinking-content-[0-9a-f]{32})>.*?</\1>", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_SMOLAGENTS_CODE = re.compile(
    r"\nCalling tools:\n\[\{'id': 'call_\d+', 'type': 'function',"
    r" 'function': \{'name': 'python_interpreter', .*\Z",
    re.DOTALL,
)
_SMOLAGENTS_CLOSINGS = ("</code>", "```")
_OPENCLAW_STAMP = re.compile(r"^\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}[^\]\n]*\] ")
_OPENCLAW_RUNTIME = re.compile(r"\n\nRuntime: agent=\S+ \| [^\n]*\s*$")


def strip_blocks(text: str) -> str:
    """The text without the blocks that come and go from one request to the next."""
    if _AIDER_FILES.match(text):
        return ""
    return _AIDER_REMINDER.sub("", _BLOCKS.sub("", text))


def strip_retelling(text: str) -> str:
    """An assistant's text without thought, and without what clients put behind it or in its place.

    smolagents ends code with the tag at which sampling stopped, and writes the code once more as a call.
    """
    spoken = _AIDER_THOUGHT.sub(" ", _THOUGHT.sub(" ", text))
    spoken = _SMOLAGENTS_CODE.sub("", spoken).rstrip()
    for closing in _SMOLAGENTS_CLOSINGS:
        spoken = spoken.removesuffix(closing)
    return "" if spoken.strip() in _AIDER_ASSENTS else spoken


def is_boilerplate(said: str, before: str) -> bool:
    """Whether an assistant's words are a client's own, put after the words `before` of the user."""
    said = said.strip()
    return said in _AIDER_ASSENTS or (said == "Ok." and before.startswith(_AIDER_NOTICES))


def without_client_text(text: str) -> str:
    """The text, stripped, without blocks, time stamps and run-time lines that clients are known to add."""
    without = strip_blocks(text).strip()
    return _OPENCLAW_RUNTIME.sub("", _OPENCLAW_STAMP.sub("", without))
