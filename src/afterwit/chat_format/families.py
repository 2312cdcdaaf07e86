"""The table of conventions in which families of models write reasoning and tool calls.

Most conventions are data: marks, and a pattern of the text before a call's JSON arguments. Gemma, GLM and
Qwen's XML write arguments in notations of their own, which have a reader each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from afterwit.chat_format.arguments import Ahead, Head, head_of, json_ahead, marked_ahead, never_ahead
from afterwit.chat_format.calls import (
    Schemas,
    WrittenCall,
    ends_in_a_string,
    object_of,
    object_text,
    parse_array,
    parse_calls,
    parse_python,
    properties_of,
    quoted,
    written,
)
from afterwit.chat_format.elements import Elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    begin: str
    end: str
    closing: str
    """Closes reasoning that the prompt left open, before a forced call: the end mark with its spacing."""


THINK = Thought(begin="<think>", end="</think>", closing="\n</think>\n\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMarks:
    """The marks around one call, or around several that are read together."""

    begin: str
    end: str = ""
    """Empty: the call ends with its JSON value."""
    quotes_end: Callable[[str], bool] = ends_in_a_string
    """Whether text after `begin` stops inside an argument, so that the `end` after it is part of a value."""
    is_whole: Callable[[str], bool] = lambda text: True
    """Whether to read text after `begin` although the response ended before `end`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One way of writing tool calls and reasoning.

    Calls are between marks anywhere in the response, or the whole response consists of calls and starts with
    one of `openings`. A mark's first character must not occur again in the mark.
    """

    name: str
    taught_by: Callable[[str], bool]
    """Whether a chat template teaches this convention."""
    thoughts: tuple[Thought, ...] = (THINK,)
    """The reasoning that a response may begin with."""
    calls: tuple[CallMarks, ...] = ()
    wrappers: tuple[str, ...] = ()
    """Marks around all calls of a response, without a meaning of their own."""
    openings: tuple[str, ...] = ()
    """A response that starts with one of these is held back to its end, then read as calls."""
    read: Callable[[str, Schemas], list[WrittenCall]] = lambda text, schemas: []
    """The calls in the text between the marks, or in the whole response. Empty if it is anything else."""
    ahead: Callable[[Schemas], Ahead] = never_ahead
    """Reads the arguments of a call while it is being written, given the schemas of the tools."""
    opening: tuple[str, str] | None = None
    """The texts before and after a tool's name that force a call. None: calls cannot be forced."""
    inner: tuple[str, ...] = ()
    """Marks within a call. Special tokens of these, and of the marks above, are decoded as text."""
    content_mark: str = ""
    """The mark of the content, if it has one: other text may come before."""
    grammar: Literal["marks", "harmony"] = "marks"
    """`harmony`: the whole response is messages in channels."""

    @property
    def without_calls(self) -> Convention:
        """For a request without tools: only reasoning is separated from content."""
        return replace(self, calls=(), wrappers=(), openings=(), read=NO_CALLS.read, opening=None)

    @property
    def marks(self) -> tuple[str, ...]:
        """All texts that the response parser must see."""
        thoughts = [mark for thought in self.thoughts for mark in (thought.begin, thought.end)]
        calls = [mark for call in self.calls for mark in (call.begin, call.end) if mark]
        return (*thoughts, *calls, *self.wrappers, *self.openings, *self.inner)

    def shows(self, control: str) -> bool:
        """Whether a control token of the tokenizer is a part of a mark, so that its text is needed."""
        return any(control in mark for mark in self.marks)

    def open_thought(self, prompt: str) -> Thought | None:
        """The reasoning that a rendered prompt leaves open, so that the response begins inside it."""
        prompt = prompt.rstrip()
        return next((thought for thought in self.thoughts if prompt.endswith(thought.begin.rstrip())), None)

    def forced_opening(self, name: str | None, thought: Thought | None) -> str:
        """The text that forces a call of the tool, or of any; empty if calls cannot be forced.

        `thought`: the reasoning that the prompt left open, which is closed first.
        """
        if self.opening is None:
            return ""
        before, after = self.opening
        if name is not None and before.endswith('"'):
            name = quoted(name)[1:-1]
        return (thought.closing if thought else "") + before + ("" if name is None else name + after)


def _read_after(
    head: Callable[[str], Head | None], fence: str = ""
) -> Callable[[str, Schemas], list[WrittenCall]]:
    """Reads a call whose name is in the head, the text before its JSON arguments; a fence may follow them."""

    def read(text: str, schemas: Schemas) -> list[WrittenCall]:
        name, place = head(text) or ("", 0)
        return written(name, object_text(text[place:].strip().removesuffix(fence)) if name else None)

    return read


def _in_json_string(text: str) -> bool:
    """Whether a call stops inside a string of its JSON arguments."""
    arguments = text.find("{")
    return arguments >= 0 and ends_in_a_string(text[arguments:])


_JSON_HEAD = r'\s*\{\s*"name"\s*:\s*"([^"\\\x00-\x1f]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
"""The head of a call in JSON whose name comes first."""

_ANY_HEAD = head_of(rf"\s*+\[?{_JSON_HEAD}")


def _read_json(text: str, schemas: Schemas) -> list[WrittenCall]:
    return parse_calls(text) or parse_array(text)


_HERMES = ("<tool_call>", "</tool_call>")
HERMES = Convention(  # Hermes, Qwen2.5, Qwen3, SmolLM3, Granite 4
    name="hermes",
    taught_by=lambda template: _HERMES[0] in template,
    calls=(CallMarks(begin=_HERMES[0], end=_HERMES[1]),),
    read=_read_json,
    ahead=json_ahead(_ANY_HEAD),
    opening=(_HERMES[0] + '\n{"name": "', '", "arguments": {'),
)
"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Some models write several calls there."""


def _array(
    name: str, begin: str, end: str = "", *, taught: str | None = None, thought: Thought = THINK
) -> Convention:
    """One JSON array of calls between marks. A template that holds `taught`, or else `begin`, teaches it."""
    return Convention(
        name=name,
        taught_by=lambda template: (taught or begin) in template,
        thoughts=(thought,),
        calls=(CallMarks(begin=begin, end=end),),
        read=_read_json,
        ahead=json_ahead(_ANY_HEAD),
        opening=(begin + '[{"name": "', '", "arguments": {'),
    )


_FINAL = "[BEGIN FINAL RESPONSE]"
APRIEL = _array(
    "apriel",
    "<tool_calls>",
    "</tool_calls>",
    taught=_FINAL,
    thought=Thought(begin="Here are my reasoning steps:\n", end=_FINAL, closing=f"\n{_FINAL}\n"),
)
JAMBA = _array("jamba", "<tool_calls>", "</tool_calls>")
NEMOTRON = _array("nemotron", "<TOOLCALL>", "</TOOLCALL>")
_GRANITE = "<|tool_call|>"
GRANITE = replace(_array("granite", _GRANITE), calls=(CallMarks(begin=_GRANITE), CallMarks(begin=_HERMES[0])))
"""Some versions write Hermes' mark."""

_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_CALL, _SEPARATOR, _DEEPSEEK_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCE = "```json"
_DEEPSEEK_NAME = r"([^\s<>{}`]+)\s*"
_DEEPSEEK_HEAD = head_of(
    rf"\s*+(?:function\s*{_SEPARATOR}\s*{_DEEPSEEK_NAME}{_FENCE}|{_DEEPSEEK_NAME}{_SEPARATOR})\s*(?=\{{)"
)


def _deepseek(name: str, *, fenced: bool) -> Convention:
    begin = _DEEPSEEK[0] + _DEEPSEEK_CALL
    return Convention(
        name=name,
        taught_by=lambda template: _DEEPSEEK_CALL in template and (_FENCE in template) is fenced,
        calls=(CallMarks(begin=_DEEPSEEK_CALL, end=_DEEPSEEK_END, quotes_end=_in_json_string),),
        wrappers=_DEEPSEEK,
        read=_read_after(_DEEPSEEK_HEAD, fence="```"),
        ahead=json_ahead(_DEEPSEEK_HEAD),
        opening=(f"{begin}function{_SEPARATOR}", f"\n{_FENCE}\n{{") if fenced else (begin, f"{_SEPARATOR}{{"),
        inner=(_SEPARATOR,),
    )


DEEPSEEK_V3 = _deepseek("deepseek_v3", fenced=True)
"""V3 and R1: `function SEPARATOR name`, and the arguments in a fence."""
DEEPSEEK_V31 = _deepseek("deepseek_v31", fenced=False)
"""V3.1: `name SEPARATOR {...}`."""

_KIMI = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_KIMI_CALL, _KIMI_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"
_KIMI_HEAD = head_of(
    rf"\s*+(?:functions\.)?([^\s:<>{{}}]+)(?::\d+)?\s*{re.escape(_KIMI_ARGUMENTS)}\s*(?=\{{)"
)


def _read_kimi(text: str, schemas: Schemas) -> list[WrittenCall]:
    """A number in the place of the id is the one tool that has all of the arguments."""
    calls = _read_after(_KIMI_HEAD)(text, schemas)
    if not calls or not calls[0].name.isdigit() or calls[0].name in schemas:
        return calls
    given = json.loads(calls[0].arguments).keys()
    fits = [name for name, schema in schemas.items() if given <= properties_of(schema).keys()]
    return [WrittenCall(fits[0], calls[0].arguments)] if len(fits) == 1 else []


KIMI = Convention(
    name="kimi",
    taught_by=lambda template: _KIMI[0] in template,
    calls=(CallMarks(begin=_KIMI_CALL, end=_KIMI_END, quotes_end=_in_json_string),),
    wrappers=_KIMI,
    read=_read_kimi,
    ahead=json_ahead(_KIMI_HEAD),
    opening=(f"{_KIMI[0]}{_KIMI_CALL}functions.", ":"),
    inner=(_KIMI_ARGUMENTS,),
)
"""Kimi K2: calls whose ids hold the name, as `functions.read:0`, within a section."""

MAGISTRAL = Thought(begin="[THINK]", end="[/THINK]", closing="[/THINK]")
_MISTRAL, _MISTRAL_ARGUMENTS, _MISTRAL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_MISTRAL_NAMED = r"\s*+([^\s\[\]{}]+)(?:\[CALL_ID\][^\[{]*+)?(?:\[ARGS\])?\s*(?=\{)"
_MISTRAL_HEAD = head_of(f"(?:{_MISTRAL_NAMED}|{_JSON_HEAD})")
_read_named = _read_after(head_of(_MISTRAL_NAMED))


def _mistral(name: str, opening: tuple[str, str], *, named: bool) -> Convention:
    return Convention(
        name=name,
        taught_by=lambda template: _MISTRAL in template and (_MISTRAL_ARGUMENTS in template) is named,
        thoughts=(MAGISTRAL, THINK),
        calls=(CallMarks(begin=_MISTRAL),),
        read=lambda text, schemas: _read_named(text, schemas) or _read_json(text, schemas),
        ahead=json_ahead(_MISTRAL_HEAD),
        opening=opening,
        inner=(_MISTRAL_ARGUMENTS, _MISTRAL_ID) if named else (),
    )


MISTRAL = _mistral("mistral", (_MISTRAL + ' [{"name": "', '", "arguments": {'), named=False)
"""`[TOOL_CALLS]` before one JSON array of calls."""
MISTRAL_ARGS = _mistral("mistral_args", (_MISTRAL, f"{_MISTRAL_ARGUMENTS}{{"), named=True)
"""Newer: `[TOOL_CALLS]name[ARGS]{...}` for each call."""

_PYTHON_TAG, _PYTHON_START, _PYTHON_END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
_TAUGHT_LIST = re.compile(r"\[func_?(?:tion_)?name1?\(")
"""As in `[func_name1(params_name1=params_value1), func_name2(params)]`."""
_LLAMA_HEAD = head_of(rf"(?:\s*(?:{re.escape(_PYTHON_TAG)}|{re.escape(_PYTHON_START)}))?{_JSON_HEAD}")


def _read_list(text: str, schemas: Schemas) -> list[WrittenCall]:
    return parse_python(text.strip().removeprefix(_PYTHON_START).removesuffix(_PYTHON_END))


LLAMA = Convention(
    name="llama",
    taught_by=lambda template: (
        '"parameters"' in template and ("ipython" in template or _PYTHON_TAG in template)
    ),
    openings=("{", _PYTHON_TAG),
    read=lambda text, schemas: parse_calls(text.strip().removeprefix(_PYTHON_TAG)),
    ahead=json_ahead(_LLAMA_HEAD),
    opening=('{"name": "', '", "parameters": {'),
)
"""Llama 3: the whole response is calls in JSON."""
LLAMA4 = Convention(
    name="llama4",
    taught_by=lambda template: "<|header_start|>" in template,
    openings=("[", "{", _PYTHON_START),
    read=lambda text, schemas: (
        _read_list(text, schemas) or parse_calls(text.replace(_PYTHON_START, "").replace(_PYTHON_END, ""))
    ),
    ahead=json_ahead(_LLAMA_HEAD),
    opening=("[", "("),
    inner=(_PYTHON_END,),
)
"""Its template prescribes JSON and its documentation a Python list: the models write both."""
PYTHONIC = Convention(
    name="pythonic",
    taught_by=lambda template: _TAUGHT_LIST.search(template) is not None,
    openings=("[",),
    read=_read_list,
    opening=("[", "("),
)
"""A Python list of calls: Llama 3.2, ToolACE, and templates that people write for Gemma 3."""

LFM = Convention(
    name="lfm2",
    taught_by=lambda template: "<|tool_call_start|>" in template or "<|tool_list_start|>" in template,
    calls=(CallMarks(begin="<|tool_call_start|>", end="<|tool_call_end|>"),),
    read=lambda text, schemas: parse_python(text) or parse_array(text),
    opening=("<|tool_call_start|>[", "("),
)
"""LFM2: a Python list of calls between marks; some templates write JSON there."""


def _read_lines(text: str, schemas: Schemas) -> list[WrittenCall]:
    lines = (line.strip() for line in text.split("\n"))
    return parse_python(f"[{', '.join(filter(None, lines))}]")


OLMO = Convention(
    name="olmo3",
    taught_by=lambda template: "<function_calls>" in template,
    calls=(CallMarks(begin="<function_calls>", end="</function_calls>"),),
    read=_read_lines,
    opening=("<function_calls>", "("),
)
"""OLMo 3: a Python call on each line between marks."""

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
MESSAGE_ENDS = ("<|end|>", "<|call|>", "<|return|>", START)
"""The ends of a message; a new one may begin without an end before it."""
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


def recipient(header: str) -> str | None:
    found = _RECIPIENT.search(header)
    return found[1].removeprefix("functions.") if found else None


def channel(header: str) -> str:
    """The channel that a message's header names; empty if none."""
    found = _CHANNEL.search(header)
    return found[1] if found else ""


def _read_message(text: str, schemas: Schemas) -> list[WrittenCall]:
    header, _, body = text.partition(MESSAGE)
    return written(recipient(header) or "", object_text(body or "{}"))


def _message_head(text: str) -> Head | None:
    header, _, body = text.partition(MESSAGE)
    place = len(text) - len(body.lstrip())
    return Head(recipient(header) or "", place) if text.startswith("{", place) else None


HARMONY = Convention(
    name="harmony",
    taught_by=lambda template: CHANNEL in template and MESSAGE in template,
    thoughts=(),
    calls=(CallMarks(begin=MESSAGE, end="<|call|>"),),
    read=_read_message,
    ahead=json_ahead(_message_head),
    opening=(f"{CHANNEL}commentary to=functions.", f" {CONSTRAIN}json{MESSAGE}{{"),
    inner=(CHANNEL, CONSTRAIN, MESSAGE, *MESSAGE_ENDS),
    content_mark=f"{CHANNEL}final{MESSAGE}",
    grammar="harmony",
)
"""gpt-oss: the response is messages, `<|channel|>name<|message|>text<|end|>`; a call names its recipient.

Reasoning is the channel `analysis`, the answer `final`; `commentary` is a call if it has a recipient, else
text before one. The recipient may come before or after the channel's name.
"""

_QUOTE = '<|"|>'
_GEMMA_CALL = re.compile(r"\s*:?(?:call:)?([^\s{}]+)\s*(?=\{)")
_GEMMA_KEY = re.compile(r"([{,])([^{}\[\],:\"]+):")


def _read_gemma(text: str, schemas: Schemas) -> list[WrittenCall]:
    named = _GEMMA_CALL.match(text)
    parts = text[named.end() :].split(_QUOTE) if named else []
    return written(named[1], object_text(_gemma_json(parts))) if named and len(parts) % 2 else []


def _gemma_json(parts: list[str]) -> str:
    """The parts around the quote marks as JSON: every second part is a text."""
    return "".join(
        quoted(part)
        if at % 2
        else _GEMMA_KEY.sub(lambda found: f"{found[1]}{quoted(found[2].strip())}:", part)
        for at, part in enumerate(parts)
    )


def _begun_gemma(text: str, schemas: Schemas) -> WrittenCall | None:
    named = _GEMMA_CALL.match(text)
    return WrittenCall(named[1], _gemma_json(text[named.end() :].split(_QUOTE)[:-1])) if named else None


GEMMA = Convention(
    name="gemma",
    taught_by=lambda template: "<|tool_call>" in template,
    thoughts=tuple(
        Thought(begin=begin, end="<channel|>", closing="<channel|>")
        for begin in ("<|channel>thought\n", "<|channel>")
    ),
    calls=(
        CallMarks(
            begin="<|tool_call>", end="<tool_call|>", quotes_end=lambda text: text.count(_QUOTE) % 2 == 1
        ),
    ),
    openings=("call:",),
    read=_read_gemma,
    ahead=marked_ahead(_QUOTE, _begun_gemma),
    opening=("<|tool_call>call:", "{"),
    inner=(_QUOTE,),
)
"""Gemma 4: `<|tool_call>call:name{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>`.

Texts are between quote marks, without escapes; keys are unquoted. After reasoning the models may forget the
marks around a call. Gemma 3's own template teaches no calls.
"""

_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_GLM_KEY = re.compile(rf"(?:\A|{_VALUE_END})\s*<arg_key>([^<>]+)</arg_key>\s*{_VALUE}")
"""A key after the beginning of the call or the end of another value."""
_GLM_BROKEN = re.compile(rf"{_VALUE_END}\s*<arg_key>")
"""A key without its end mark, which would be read as a part of the value before it."""
_GLM_NAME = re.compile(r"\s*([^\s<>{}\"]+)\s*")
_GLM_LINES = "</arg_key>\n<arg_value>"
"""GLM 4.5 and 4.6 write each part on a line of its own, later ones do not."""


def _read_glm(text: str, schemas: Schemas) -> list[WrittenCall]:
    name, values = _glm_parameters(text)
    if values is None or (not values and schemas and name not in schemas):  # a word between mentioned marks
        return []
    return written(name, object_of(values, schemas.get(name)))


def _glm_parameters(text: str) -> tuple[str, list[tuple[str, str]] | None]:
    """The name of a call, and its parameters by name; None if the text is not a call."""
    named = _GLM_NAME.match(text)
    before, *parts = _GLM_KEY.split(text[named.end() :].rstrip() if named else text)
    if named is None or before or any(map(_GLM_BROKEN.search, parts[1::2])):
        return "", None
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return named[1], [(key.strip(), value.removesuffix(_VALUE_END)) for key, value in pairs]


def _begun_glm(text: str, schemas: Schemas) -> WrittenCall | None:
    name, values = _glm_parameters(text)
    if not values or values[-1][1]:  # the mark is in a value
        return None
    return WrittenCall(name, object_of(values[:-1], schemas.get(name)).removesuffix("}"))


def _glm(name: str, *, lines: bool) -> Convention:
    marks = CallMarks(
        begin=_HERMES[0],
        end=_HERMES[1],
        quotes_end=lambda text: text.rfind(_VALUE) > text.rfind(_VALUE_END),
        is_whole=lambda text: False,
    )
    return Convention(
        name=name,
        taught_by=lambda template: "<arg_key>" in template and (_GLM_LINES in template) is lines,
        thoughts=(Thought(begin="<think>", end="</think>", closing="</think>\n" if lines else "</think>"),),
        calls=(marks,),
        read=_read_glm,
        ahead=marked_ahead(_VALUE, _begun_glm),
        opening=(_HERMES[0], "\n" if lines else ""),
    )


GLM_LINES = _glm("glm45", lines=True)
GLM = _glm("glm", lines=False)
"""`<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`.

Texts are written without quotes or escapes and everything else as JSON; the tool's schema distinguishes them.
"""


def _marks(elements: Elements, begin: str, end: str) -> CallMarks:
    return CallMarks(begin=begin, end=end, quotes_end=elements.in_value, is_whole=elements.is_whole)


_FUNCTION, _FUNCTION_END, _PARAMETER = "<function=", "</function>", "<parameter="
_QWEN = Elements(_FUNCTION, _PARAMETER, ">", _FUNCTION_END, lines=True)
QWEN_XML = Convention(
    name="qwen_xml",
    taught_by=lambda template: _FUNCTION in template and _PARAMETER in template,
    calls=(  # a model that forgets the first marks writes the second ones alone
        _marks(_QWEN, *_HERMES),
        _marks(_QWEN, _FUNCTION, _FUNCTION_END),
    ),
    read=lambda text, schemas: _QWEN.read(text, schemas) or _read_json(text, schemas),
    ahead=_QWEN.ahead,
    opening=(f"{_HERMES[0]}\n{_FUNCTION}", ">\n"),
)
"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3: `<function=name><parameter=key>value</parameter></function>`.

Values are texts without quotes or escapes, which the tool's schema types. A value that begins on a new line
ends on one, and another parameter or the end of the call follows: any other mark in it is its own text. Some
of the models write JSON at times.
"""

_SEED, _SEED_END = "<seed:tool_call>", "</seed:tool_call>"
SEED = replace(
    QWEN_XML,
    name="seed_oss",
    taught_by=lambda template: _SEED in template,
    thoughts=(Thought(begin="<seed:think>", end="</seed:think>", closing="</seed:think>\n"),),
    calls=(_marks(_QWEN, _SEED, _SEED_END), *QWEN_XML.calls[1:]),
    opening=(f"{_SEED}\n{_FUNCTION}", ">\n"),
)
"""Seed-OSS: the same between marks of its own."""

_INVOKE, _INVOKE_END = '<invoke name="', "</invoke>"
_INVOKED = Elements(_INVOKE, '<parameter name="', '">', _INVOKE_END, lines=False)
MINIMAX = Convention(
    name="minimax",
    taught_by=lambda template: "<minimax:tool_call>" in template,
    calls=(_marks(_INVOKED, _INVOKE, _INVOKE_END),),
    wrappers=("<minimax:tool_call>", "</minimax:tool_call>"),
    read=_INVOKED.read,
    ahead=_INVOKED.ahead,
    opening=(f"<minimax:tool_call>\n{_INVOKE}", '">\n'),
)
"""MiniMax M2: `<invoke name="name"><parameter name="key">value</parameter></invoke>`, within a mark."""

CONVENTIONS = (
    *(HARMONY, GEMMA, DEEPSEEK_V3, DEEPSEEK_V31, KIMI, GLM_LINES, GLM, SEED, QWEN_XML, MINIMAX),
    *(MISTRAL, MISTRAL_ARGS, HERMES, APRIEL, JAMBA, NEMOTRON, GRANITE, LFM, OLMO),
    *(PYTHONIC, LLAMA4, LLAMA),
)
"""In the order in which `convention_of` tries them."""

NO_CALLS = Convention(name="none", taught_by=lambda template: True)
"""For a template that teaches no convention of the table."""

AUTO = "auto"
_NAMES = (AUTO, *(entry.name for entry in CONVENTIONS), NO_CALLS.name)


def check_name(name: str) -> None:
    """ValueError, with the nearest name, unless a setting may have this name."""
    if name not in _NAMES:
        near = get_close_matches(name, _NAMES, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(_NAMES)}"
        raise ValueError(f"there is no tool call parser {name!r}: {meant}")


def convention_of(template: str, name: str = AUTO) -> Convention:
    """The convention of that name; with `auto` the one that a chat template teaches, else NO_CALLS.

    ValueError for a name that is not in the table.
    """
    check_name(name)
    entries = (*CONVENTIONS, NO_CALLS)
    return next(one for one in entries if one.name == name or (name == AUTO and one.taught_by(template)))


def unknown_template(template: str) -> str:
    """The message for a template of no known convention: its defect, and the remedy."""
    if "tools" not in template:
        missing = "the chat template does not offer tools to the model"
        remedy = "if the model can call tools, give it a template that does"
    else:
        missing = "the chat template offers tools in no convention that is known here"
        remedy = f"set gateway.tool_call_parser to the one of {', '.join(_NAMES[1:])} that it writes"
    return f"{missing}: calls stay text, and none can be forced; {remedy}"
