"""The table of conventions, and which one a chat template teaches."""

from __future__ import annotations

import re
from difflib import get_close_matches

from afterwit.chat_format.convention import Convention
from afterwit.chat_format.families.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from afterwit.chat_format.families.gemma import GEMMA
from afterwit.chat_format.families.glm import GLM, GLM_LINES
from afterwit.chat_format.families.harmony import HARMONY
from afterwit.chat_format.families.hermes import HERMES
from afterwit.chat_format.families.kimi import KIMI
from afterwit.chat_format.families.llama import LLAMA, LLAMA4, PYTHONIC
from afterwit.chat_format.families.mistral import MISTRAL, MISTRAL_ARGS
from afterwit.chat_format.families.qwen_xml import QWEN_XML

CONVENTIONS = (
    HARMONY,
    GEMMA,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI,
    GLM_LINES,
    GLM,
    QWEN_XML,
    MISTRAL,
    MISTRAL_ARGS,
    HERMES,
    PYTHONIC,
    LLAMA4,
    LLAMA,
)
"""In the order in which `convention_of` tries them."""

NO_CALLS = Convention(name="none", taught_by=lambda template: True)
"""For a template that teaches no convention of the table."""

AUTO = "auto"


def names() -> tuple[str, ...]:
    """The names that a setting may have."""
    return (AUTO, *(entry.name for entry in (*CONVENTIONS, NO_CALLS)))


def check_name(name: str) -> None:
    """ValueError, with the nearest name, unless it is one of `names`."""
    if name in names():
        return
    near = get_close_matches(name, names(), n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(names())}"
    raise ValueError(f"there is no tool call parser {name!r}: {meant}")


def convention_of(template: str, name: str = AUTO) -> Convention:
    """The convention of that name; with `auto` the one that a chat template teaches, else NO_CALLS.

    ValueError for a name that is not in the table.
    """
    check_name(name)
    entries = (*CONVENTIONS, NO_CALLS)
    if name == AUTO:
        return next(entry for entry in entries if entry.taught_by(template))
    return next(entry for entry in entries if entry.name == name)


def unknown_template(template: str) -> str:
    """What is missing in a template of no known convention, and what to do."""
    if "tools" not in template:
        missing = "the chat template does not offer tools to the model"
        remedy = "if the model can call tools, give it a template that does"
    else:
        missing = "the chat template offers tools in no convention that is known here"
        remedy = f"set gateway.tool_call_parser to the one of {', '.join(names()[1:])} that it writes"
    return f"{missing}: calls stay text, and none can be forced; {remedy}"


_BEGUN = re.compile(
    f"(?:{'|'.join(sorted({re.escape(entry.calls[0].begin) for entry in CONVENTIONS if entry.calls}))})"
    r"(?:\s*(?:[{\[]|<(?!/))|\n?\w[\w.:-]*(?:[(\[{<\n]|\Z))"
)
"""A mark, and what calls begin with: JSON, another mark or a name. Prose goes on in words."""

_CODE = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def holds_unread_call(content: str) -> bool:
    """Whether content holds the beginning of a call, of any convention, that could not be read.

    A mark that is only named, or stands in code, begins none.
    """
    found = _BEGUN.search(content)
    return found is not None and _BEGUN.search(_CODE.sub(" ", content)) is not None
