"""Errands: titles, topics, tags, summaries, reviews, asked for beside a conversation or behind it.

Beside it, an errand has no tools and at most two messages, quotes the first message of a conversation under
another system text, and says something of its own: it asks for such a thing, or, in words that are not known,
for something about a conversation with tools. Words alone tell nothing: people ask for names, titles and
summaries too. Behind it, only words tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from afterwit.binding.parents import LONG_REPLY
from afterwit.binding.request import IncomingRequest
from afterwit.binding.retelling import SHORTEST, Recent, of_the_same_client
from afterwit.binding.segments import plain_text
from afterwit.binding.side_turns import TINY, Shape
from afterwit.message import SYSTEM, Message

OPENING = 300
"""Characters of a text in which it says what it wants."""

_BEFORE_A_QUOTE = r"""(?<=[:>"'`(\[\u201c\u00ab\u201e])\s?"""

_BEHIND_A_QUOTE = r"""(?=\s?(?:\Z|[<"'`)\[\]\u201d\u00bb]|(?:Assistant|assistant|AI|Agent|Model|Bot):))"""
"""What stands around a short quote."""

BRIEF = 200
"""Most characters of what an errand in unknown words is answered: a title is short."""

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
    """The session of a request's errand; None if it is not an errand."""
    if not may_be_errand(incoming):
        return None
    own = of_the_same_client(incoming, recent)
    if _is_talked_in(incoming.shape, own):
        return None
    others = [one for one in own if one.shape and one.shape.system != incoming.shape.system and one.asked]
    texts = [text for text in incoming.texts if text]
    return next((one.session for one in others if _runs_for(texts, one)), None)


def may_have_errands(incoming: IncomingRequest) -> bool:
    """Whether a request begins what errands are about: `errands_of` may find some."""
    return bool(incoming.shape.tools)


def errands_of(incoming: IncomingRequest, recent: Sequence[Recent]) -> list[str]:
    """Earlier requests that turn out to be errands of the conversation that this request begins, if no one
    went on from them."""
    asked = next((text for text in _asked(incoming) if text), "")
    if not may_have_errands(incoming) or not asked:
        return []
    own = of_the_same_client(incoming, recent)
    return [one.turn for one in own if _ran_ahead(one, asked, incoming.shape.system, own)]


def _runs_for(texts: Sequence[str], one: Recent) -> bool:
    """Whether a request that says these texts asks for something about a conversation, whose first words it
    quotes: in known words, or, if the conversation has tools, in any."""
    wishes = _words_around(texts, _first_words(one))
    if not wishes:
        return False
    return asks_about(wishes) or bool(one.shape and one.shape.tools and _long(one.asked[0]))


def _ran_ahead(one: Recent, asked: str, system: str, own: Sequence[Recent]) -> bool:
    """Whether a request of its own, without tools, asks for something about a conversation that has tools and
    begins with what was `asked`."""
    if not one.begins or one.shape is None or one.shape.tools or one.shape.system == system:
        return False
    said = [text for text in one.texts[:-1] if text]
    wishes = _words_around(said, asked)
    if len(said) > TINY or wishes is None or not (wishes or one.shape.instructed):
        return False
    whole = asked in said or _long(asked)
    return (asks_about(wishes) or (whole and len(one.texts[-1]) <= BRIEF)) and not _is_talked_in(
        one.shape, own
    )


def _words_around(texts: Sequence[str], quote: str) -> list[str] | None:
    """What the texts say beside the first quote of one; None if none quotes it.

    A short one is a whole text, or stands between signs: many texts hold the letters.
    """
    for at, text in enumerate(texts):
        place = (0, len(text)) if text == quote else _place_of(quote, text)
        if place is not None:
            words = [*texts[:at], text[: place[0]].strip(), text[place[1] :].strip(), *texts[at + 1 :]]
            return [word for word in words if word]
    return None


def _place_of(quote: str, text: str) -> tuple[int, int] | None:
    if _long(quote):
        begin = text.find(quote)
        return None if begin < 0 else (begin, begin + len(quote))
    found = re.search(_BEFORE_A_QUOTE + re.escape(quote) + _BEHIND_A_QUOTE, text) if quote in text else None
    return None if found is None else found.span()


def _first_words(one: Recent) -> str:
    """The whole first message of the user, as far as it is known."""
    return next((text for text in one.texts if text.startswith(one.asked[0])), one.asked[0])


def _is_talked_in(shape: Shape, own: Iterable[Recent]) -> bool:
    """Whether a conversation under the same system text went on: no one talks with what writes titles."""
    return shape.instructed and any(
        one.shape is not None and not one.shape.tools and one.shape.system == shape.system and not one.begins
        for one in own
    )


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


def with_summaries_told(messages: Sequence[Message], replies: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, those of a user that quote one of the `replies` as the assistant's.

    `replies` are those of the session's side turns; short ones may be quoted by chance.
    """
    summaries = [text for text in map(plain_text, replies) if len(text) >= LONG_REPLY]
    if not summaries:
        return tuple(messages)
    return tuple(
        replace(message, role="assistant") if _quotes(message, summaries) else message for message in messages
    )


def _quotes(message: Message, summaries: Iterable[str]) -> bool:
    if message.role != "user" or len(message.content or "") < LONG_REPLY:
        return False
    text = plain_text(message)
    return any(summary in text for summary in summaries)
