"""Errands: titles, topics, tags, summaries, reviews, asked for beside a conversation or behind it.

Beside it, an errand has no tools and at most two messages. Two signs tell it: its first words ask for such a
thing, it quotes the first message of a conversation, or it has no tools where the conversations have some.
Behind it, only words tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from afterwit.core.binding.request import IncomingRequest
from afterwit.core.binding.retelling import SHORTEST, Recent, of_the_same_client
from afterwit.core.binding.side_turns import TINY
from afterwit.core.message import SYSTEM

OPENING = 300
"""Characters of a text in which it says what it wants."""
BETWEEN = "\n"
"""Stands between texts that are searched as one: none of them holds it (`segments.collapse`)."""
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
    r"(?:conversation|chat|discussion|dialogue)\b"
    r"|\b(?:this|our|current|above|whole|entire) session\b|\bconversation (?:above|so far|history)\b"
)
_OF_ITS_USER = re.compile(r"\bthe (?:user|human)\b|\bthis (?:chat|conversation|session|thread|dialogue)\b")
_IN_A_FORM = re.compile(
    r"\bjson\b|\bno (?:\w+ )?(?:tools?|quotes|punctuation|explanations?|preamble)\b|\bnothing else\b"
    r"|\b(?:not|never) (?:use|call) (?:any )?tools?\b|\b(?:only|just) (?:the|a|with)\b|\balone\b"
    r"|\bwords (?:or (?:fewer|less)|at most)\b"
    r"|\b(?:at most|under|within|up to|max(?:imum)?) [\w-]+ (?:words|characters)\b"
)
FEWEST_WORDS = 80
"""Characters of a request to look back: what clients write for it is long, what people write is shorter."""


def looks_back(incoming: IncomingRequest) -> bool:
    """Whether the request ends with a client's wish about the whole conversation.

    It wants to look back on all of it; or it wants a title, suggestions or the like, speaks of the user or of
    the chat as one who is outside, and says in which form it wants the answer.
    """
    if incoming.last_reply is None or incoming.messages[-1].role not in ("user", *SYSTEM):
        return False
    opening = incoming.texts[-1][:OPENING].lower()
    if len(incoming.texts[-1]) < FEWEST_WORDS:
        return False
    back = _BACK.search(opening) and _ALL_OF_IT.search(opening)
    beside = _WANTED.search(opening) and _OF_ITS_USER.search(opening) and _IN_A_FORM.search(opening)
    return bool(back or beside)


def may_be_errand(incoming: IncomingRequest) -> bool:
    """Whether a request is small enough to be an errand: `errand_of` may find one."""
    return not incoming.shape.tools and incoming.shape.tiny and incoming.last_reply is None


def errand_of(incoming: IncomingRequest, recent: Sequence[Recent]) -> str | None:
    """The session of a request's errand, "" if that is not known; None if it is not an errand."""
    if not may_be_errand(incoming):
        return None
    bare = [
        one
        for one in of_the_same_client(incoming, recent)
        if one.shape is not None and one.shape.system != incoming.shape.system
    ]
    texts = [text for text in incoming.texts if text]
    said = BETWEEN.join(texts)
    quoted = [one for one in bare if one.asked and one.asked[0] in said]
    tooled = [one for one in bare if one.shape is not None and one.shape.tools]
    worded = bool(quoted or tooled) and asks_about(texts)
    if worded and quoted:
        return quoted[0].session
    if worded and tooled:
        return ""
    return next((one.session for one in quoted if one in tooled and _long(one.asked[0])), None)


def may_have_errands(incoming: IncomingRequest) -> bool:
    """Whether a request begins what errands are about: `errands_of` may find some."""
    return bool(incoming.shape.tools)


def errands_of(incoming: IncomingRequest, recent: Iterable[Recent]) -> list[str]:
    """Earlier requests that turn out to be errands of the conversation that this request begins, if nobody
    went on from them."""
    asked = next((text for text in _asked(incoming) if text), "")
    if not may_have_errands(incoming) or not asked:
        return []
    own = of_the_same_client(incoming, recent)
    return [one.turn for one in own if _ran_ahead(one, asked, incoming.shape.system)]


def _ran_ahead(one: Recent, asked: str, system: str) -> bool:
    """Whether a request of its own, without tools, says the first words of a conversation that has tools."""
    if not one.begins or one.shape is None or one.shape.tools or one.shape.system == system:
        return False
    said = [text for text in one.texts[:-1] if text]
    if len(said) > TINY or not any(asked in text for text in said):
        return False
    return asked in said or _long(asked) or asks_about(said)


def asks_about(texts: Iterable[str]) -> bool:
    """Whether one of the texts begins, or ends, with a wish about a conversation."""
    return any(_wishes(part) for text in texts for part in (text[:OPENING], text[-OPENING:]))


def _wishes(text: str) -> bool:
    lower = text.lower()
    return _WANTED.search(lower) is not None and _ABOUT.search(lower) is not None


def _asked(incoming: IncomingRequest) -> Iterable[str]:
    said = zip(incoming.messages, incoming.texts, strict=True)
    return (text for message, text in said if message.role == "user")


def _long(text: str) -> bool:
    return len(text) >= SHORTEST
