"""Side turns: titles, summaries, compactions, memory flushes, background reviews, heartbeats.

They use the same URL, key and model as the conversation, and some begin with its prompt. `classify` decides
by the first sign: the client's own statement, the signature of the request, a paraphrase, known words,
descent.

Auxiliary requests concern a conversation, separately or at its end. A separate one has no tools and at most
two messages, quotes the conversation's first message under another system text, and adds its own words. The
words alone prove nothing: people request names, titles and summaries too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

from afterwit.binding.evidence import SHORTEST_TEXT, Recent, of_the_same_client
from afterwit.binding.request import TINY, IncomingRequest, Shape, collapse, last_reply
from afterwit.turn import SYSTEM, Kind

UNLIKE = 0.5
"""Two tool sets that share less than this belong to two agents."""

DOUBTFUL = 2 / 3
"""The same, if tools are missing and the system text differs as well."""

OPENING = 300
"""Characters at the beginning, or the end, of a text that state its purpose."""

BRIEF = 200
"""Most characters of the reply to an auxiliary request in unknown words: a title is short."""

FEWEST_CHARACTERS = 80
"""Shorter requests to look back are a person's: clients write more."""

_WANTED = re.compile(
    r"\b(?:titles?|summar\w+|condens\w+|compact\w*|topics?|tags?|headlines?|slugs?"
    r"|branch names?|descriptions?|follow-?ups?|suggest\w*|recaps?|memor(?:y|ies)|categor\w+|classif\w+"
    r"|names?)\b"
)

_ABOUT = re.compile(
    r"\b(?:conversations?|chats?|sessions?|threads?|dialog(?:ue)?s?|discussions?|exchanges?|histor(?:y|ies)"
    r"|messages?|requests?|prompts?|quer(?:y|ies)|tasks?|content|transcripts?|context|user|questions?)\b"
)

_BACK = re.compile(
    r"\b(?:summar\w+|reviews?|reflect\w*|look back|recap|titles?|distil\w*|extract|remember\w*|memor\w+"
    r"|compact\w*|condens\w*|checkpoint|hand-?(?:off|over)|account|digest|write-?up|notes|brief(?:ing)?)\b"
)

_ALL_OF_IT = re.compile(
    r"\b(?:this|our|the|above|whole|entire|past|previous) (?:\w+ )?"
    r"(?:conversation|chat|discussion|dialog(?:ue)?)\b"
    r"|\b(?:this|our|current|above|whole|entire) session\b|\bconversation (?:above|so far|history)\b"
)

_OF_ITS_USER = re.compile(
    r"\bthe (?:user|human)\b|\bthis (?:chat|conversation|session|thread|dialog(?:ue)?)\b"
)

_IN_A_FORM = re.compile(
    r"\bjson\b|\bno (?:\w+ )?(?:tools?|quotes|punctuation|explanations?|preamble)\b|\bnothing else\b"
    r"|\b(?:not|never) (?:use|call) (?:any )?tools?\b|\b(?:only|just) (?:the|a|with)\b|\balone\b"
    r"|\bwords (?:or (?:fewer|less)|at most)\b"
    r"|\b(?:at most|under|within|up to|max(?:imum)?) [\w-]+ (?:words|characters)\b"
)

_BEFORE_A_QUOTE = r"""(?<=[:>"'`(\[\u201c\u00ab\u201e])\s?"""
_AFTER_A_QUOTE = r"""(?=\s?(?:\Z|[<"'`)\[\]\u201d\u00bb]|(?:Assistant|assistant|AI|Agent|Model|Bot):))"""


def classify(
    incoming: IncomingRequest,
    *,
    usual: Collection[Shape],
    parent: Kind | None,
    about_another: bool,
    resumes: bool,
    repeats: bool,
) -> Kind:
    """MAIN or SIDE.

    `usual` are the known signatures of the session's earlier turns. `about_another`: the request contains or
    reviews a conversation. `resumes`: a person continues after the side turn that is its `parent`, so that
    neither the parent's kind nor the signature decides anything. `repeats`: another turn has its prompt.

    An agent whose new messages are only tool results took the conversation over from another agent. Its tools
    differ, but it is on the main line. So is the request without tools that ends an agent's work: under the
    usual system text nothing asks for anything else, unless it repeats a prompt.
    """
    if incoming.client.turn_type is not None:
        return incoming.client.turn_type
    new = {message.role for message in incoming.messages[incoming.open :]}
    own_system = any(one.system == incoming.shape.system for one in usual)
    handed_over = new == {"tool"} and (bool(incoming.shape.tools) or (own_system and not repeats))
    if not (handed_over or resumes) and unlike(incoming.shape, usual):
        return Kind.SIDE
    side_parent = parent is Kind.SIDE and not resumes
    return Kind.SIDE if about_another or side_parent or opens_as_known(incoming) else Kind.MAIN


def unlike(shape: Shape, usual: Collection[Shape]) -> bool:
    """Whether a request has another signature than all of the session's known ones, if there are any."""
    return bool(usual) and all(differs(shape, one) for one in usual)


def differs(shape: Shape, usual: Shape) -> bool:
    """Whether a request has another signature than is usual in its session.

    A tool set that is only somewhat unlike needs a second sign: people switch tools on and off.
    """
    common, all_tools = len(shape.tools & usual.tools), len(shape.tools | usual.tools)
    if usual.tools and common < UNLIKE * all_tools:
        return True
    if common < DOUBTFUL * all_tools and usual.tools - shape.tools and shape.system != usual.system:
        return True
    return usual.streamed and not shape.streamed and (shape.tiny or shape.tools != usual.tools)


@cache
def known_openings() -> Mapping[str, tuple[str, ...]]:
    """The words with which known clients open side turns: the `system` text, or a message of the user or the
    system that no reply follows (`request`)."""
    file = resources.files("afterwit.binding") / "data" / "side_patterns.json"
    found: dict[str, tuple[str, ...]] = {"system": (), "request": ()}
    for entry in json.loads(file.read_text(encoding="utf-8"))["patterns"]:
        found[entry["place"]] += (collapse(entry["starts"]),)
    return found


def opens_as_known(incoming: IncomingRequest, end: int | None = None) -> bool:
    """Whether a request, or its first `end` messages, opens as side turns of known clients do."""
    messages, known = incoming.messages[:end], known_openings()
    words = max(len(starts.split()) for starts in known["system"])
    for message, text in zip(reversed(messages), reversed(incoming.texts[: len(messages)]), strict=True):
        if message.role == "assistant":
            break
        if message.role in ("user", *SYSTEM) and text.startswith(known["request"]):
            return True
    return any(
        " ".join((message.content or "").split(None, words)[:words]).startswith(known["system"])
        for message in messages
        if message.role in SYSTEM
    )


def looks_back(incoming: IncomingRequest, end: int | None = None) -> bool:
    """Whether a request, or its first `end` messages, ends with a client's instruction about the whole
    conversation.

    Either the instruction requests a summary of the whole conversation, or it requests a title, suggestions
    or the like, describes the user or the chat from outside, and prescribes the form of the answer.
    """
    messages, last = incoming.messages[:end], incoming.texts[:end][-1]
    if last_reply(messages) is None or messages[-1].role not in ("user", *SYSTEM):
        return False
    opening = last[:OPENING].lower()
    if len(last) < FEWEST_CHARACTERS:
        return False
    if _BACK.search(opening) and _ALL_OF_IT.search(opening):
        return True
    return all(one.search(opening) for one in (_WANTED, _OF_ITS_USER, _IN_A_FORM))


def may_be_auxiliary(incoming: IncomingRequest) -> bool:
    """Whether a request is small enough to be auxiliary: `auxiliary_session` may find its session."""
    return not incoming.shape.tools and incoming.shape.tiny and incoming.last_reply is None


def auxiliary_session(incoming: IncomingRequest, recent: Sequence[Recent]) -> str | None:
    """The session that an auxiliary request is about; None if it is not one.

    It quotes the conversation's first message and asks for something about it: in known words or, if the
    conversation has tools and the quote is long, in any.
    """
    own, shape = of_the_same_client(incoming, recent), incoming.shape
    if not may_be_auxiliary(incoming) or _continues(shape, own):
        return None
    texts = [text for text in incoming.texts if text]
    for one in own:
        if one.shape is None or one.shape.system == shape.system or not one.asked:
            continue
        first = next((text for text in one.texts if text.startswith(one.asked[0])), one.asked[0])
        added = _around_quote(texts, first)
        distinct = one.shape.tools and len(one.asked[0]) >= SHORTEST_TEXT
        if added and (asks_about(added) or distinct):
            return one.session
    return None


def earlier_auxiliaries(incoming: IncomingRequest, recent: Sequence[Recent]) -> list[str]:
    """Earlier turns that were auxiliary requests about the conversation that this request, which has tools,
    begins: unless another turn follows them."""
    asked = next(iter(incoming.said("user")), "")
    if not incoming.shape.tools or not asked:
        return []
    own = of_the_same_client(incoming, recent)
    return [one.turn for one in own if _was_about(one, asked, incoming.shape.system, own)]


def _was_about(one: Recent, asked: str, system: str, own: Sequence[Recent]) -> bool:
    """Whether a first request without tools asks about the conversation that begins with `asked`."""
    if not one.begins or one.shape is None or one.shape.tools or one.shape.system == system:
        return False
    said = [text for text in one.texts[:-1] if text]
    added = _around_quote(said, asked)
    if len(said) > TINY or added is None or not (added or one.shape.system):
        return False
    whole = asked in said or len(asked) >= SHORTEST_TEXT
    about = asks_about(added) or (whole and len(one.texts[-1]) <= BRIEF)
    return about and not _continues(one.shape, own)


def _around_quote(texts: Sequence[str], quote: str) -> list[str] | None:
    """The texts without the first quote; None if there is none.

    A short quote is a whole text, or has quotation marks or the like around it: many texts hold its letters.
    """
    for at, text in enumerate(texts):
        begin, end = text.find(quote), text.find(quote) + len(quote)
        if begin >= 0 and text != quote and len(quote) < SHORTEST_TEXT:
            found = re.search(_BEFORE_A_QUOTE + re.escape(quote) + _AFTER_A_QUOTE, text)
            begin, end = (-1, 0) if found is None else found.span()
        if begin >= 0:
            around = [*texts[:at], text[:begin].strip(), text[end:].strip(), *texts[at + 1 :]]
            return [part for part in around if part]
    return None


def _continues(shape: Shape, own: Iterable[Recent]) -> bool:
    """Whether a conversation under the same system text continued: auxiliary requests get one reply."""
    return bool(shape.system) and any(
        one.shape is not None and not one.shape.tools and one.shape.system == shape.system and not one.begins
        for one in own
    )


def asks_about(texts: Iterable[str]) -> bool:
    """Whether one of the texts begins, or ends, with a request for something about a conversation."""
    parts = (part.lower() for text in texts for part in (text[:OPENING], text[-OPENING:]))
    return any(_WANTED.search(part) and _ABOUT.search(part) for part in parts)
