"""What a request without a parent has of the conversations that went on last: it may hold one of them inside
one message, which makes it a side turn, or end as one of them did, which makes it the same conversation.

To compact a conversation, clients send it as text in one message, under other instructions. The wording of
these instructions changes, the conversation inside does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from afterwit.binding.request import IncomingRequest
from afterwit.binding.side_turns import Shape
from afterwit.message import SYSTEM

SHORTEST = 16
"""Characters. Shorter texts are in many messages and are not compared."""

LONGEST = 200
"""Characters. Only the beginning of a text is compared, because clients cut long tool results."""

FEWEST = 2
"""Least number of a conversation's texts in a retelling."""

MOST = 0.5
"""Least share of a conversation's texts in a retelling."""

TELLING = 40
"""Least characters of two or more messages that show one conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A conversation of the same scope, as of its newest turn."""

    session: str
    turn: str
    texts: tuple[str, ...]
    """Its last messages as they are compared (`segments.plain_text`), the system's left out."""
    asked: tuple[str, ...] = ()
    """What its user messages say, the first one first, each cut to `LONGEST`; empty ones are left out."""
    shape: Shape | None = None
    begins: bool = False
    """Whether its newest turn follows no other."""
    client_session: bytes | None = None
    """Hash of the client's session id; None if it sent none."""
    pieces: frozenset[str] = field(init=False, repr=False, compare=False)
    """What a retelling may hold of it."""

    def __post_init__(self) -> None:
        pieces = frozenset(text[:LONGEST] for text in self.texts if len(text) >= SHORTEST)
        object.__setattr__(self, "pieces", pieces)


def of_the_same_client(incoming: IncomingRequest, recent: Iterable[Recent]) -> list[Recent]:
    """The conversations under the session id that the client sends; all if it sends none."""
    named = incoming.client_session_hash
    return [one for one in recent if named is None or one.client_session == named]


def retold(incoming: IncomingRequest, recent: Sequence[Recent], after: int = 0) -> set[str]:
    """The session that a message of the request, from index `after` on, retells; several if it holds as much
    of each."""
    carriers = carrying(incoming, after)
    if not carriers:
        return set()
    own = of_the_same_client(incoming, recent)
    held: dict[str, int] = defaultdict(int)
    for one in own:  # a session that branched is there once for each branch
        held[one.session] = max(held[one.session], *(_held(text, one) for text in carriers), 0)
    most = max(held.values(), default=0)
    return {session for session, texts in held.items() if texts == most > 0}


def carrying(incoming: IncomingRequest, after: int = 0) -> list[str]:
    """Texts of the request, from index `after` on, that are long enough to hold a conversation."""
    said = zip(incoming.messages[after:], incoming.texts[after:], strict=True)
    return [text for message, text in said if message.role == "user" and len(text) > FEWEST * SHORTEST]


def _held(text: str, conversation: Recent) -> int:
    """How many texts of a conversation a text holds; 0 if they are too few to be a retelling."""
    held = sum(piece in text for piece in conversation.pieces if len(piece) < len(text))
    return held if held >= max(FEWEST, MOST * len(conversation.pieces)) else 0


def resumed(incoming: IncomingRequest, recent: Iterable[Recent]) -> set[str]:
    """The session that ended as the request's history ends: the same reply, and the same words before it, or
    the same words of the person and none of the tools.

    A client that leaves out old messages, or the calls of tools, sends no prompt that we know. Several such
    sessions are none.
    """
    reply = incoming.last_reply
    if reply is None:
        return set()
    said = list(zip(incoming.messages[: reply[0] + 1], incoming.texts, strict=False))
    texts = [text for message, text in said if text and message.role not in SYSTEM]
    bare = not any(message.role == "tool" or message.tool_calls for message, _ in said)
    asked = [text for message, text in said if text and message.role == "user"] if bare else []
    own = of_the_same_client(incoming, recent)
    found = {
        one.session
        for one in own
        if _ends_alike(texts, [text for text in one.texts if text]) or _asked_alike(asked, reply[1], one)
    }
    return found if len(found) == 1 else set()


def _asked_alike(asked: Sequence[str], reply: str, one: Recent) -> bool:
    """Whether a conversation ended with this reply, to the same words of the person.

    The last of them may have been wrapped in others, which a client adds to what is asked now and not to what
    was asked before.
    """
    if not asked or len(asked) != len(one.asked) or one.texts[-1] != reply:
        return False
    if [text[:LONGEST] for text in asked[:-1]] != list(one.asked[:-1]):
        return False
    return _asked_last(asked[-1], one) and len(reply) + sum(map(len, asked)) >= TELLING


def _asked_last(text: str, one: Recent) -> bool:
    """Whether a conversation's last words of the person are this text, or hold it if it is not short."""
    said = [known for known in one.texts[:-1] if known.startswith(one.asked[-1])]
    return text in said or (len(text) >= SHORTEST and any(text in known for known in said))


def _ends_alike(texts: Sequence[str], known: Sequence[str]) -> bool:
    """Whether the last two texts or more are the same, and enough of them to tell them from chance."""
    pairs = zip(reversed(texts), reversed(known), strict=False)
    common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return len(common) > 1 and sum(map(len, common)) >= TELLING


def kept_words(incoming: IncomingRequest, recent: Iterable[Recent]) -> str | None:
    """The session whose user messages the request begins with, without the replies to them.

    One message in common proves nothing: many conversations begin alike. Several such sessions are none.
    """
    if incoming.last_reply is not None:
        return None
    said = zip(incoming.messages, incoming.texts, strict=True)
    asked = tuple(text[:LONGEST] for message, text in said if message.role == "user" and text)
    if len(asked) <= FEWEST:
        return None
    own = of_the_same_client(incoming, recent)
    found = {one.session for one in own if _begins_with(asked, one.asked)}
    return found.pop() if len(found) == 1 else None


def _begins_with(asked: Sequence[str], earlier: Sequence[str]) -> bool:
    told = 1 < len(earlier) < len(asked) and sum(map(len, earlier)) >= TELLING
    return told and tuple(asked[: len(earlier)]) == tuple(earlier)
