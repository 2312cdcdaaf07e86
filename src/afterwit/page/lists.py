"""Views of the chat, sessions, turns, versions, sources, review and the judge: what each reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from afterwit.chat_format.encode import BROKEN, LONGEST_CHARACTER
from afterwit.gateway.context import Gateway
from afterwit.gateway.feedback import effect
from afterwit.judging.ability import report_of
from afterwit.judging.checks import findings, warnings
from afterwit.learning.schedule import with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import Reason, State
from afterwit.page.chat import CLIENT, base_url
from afterwit.practice.table import learned_from
from afterwit.progress import by
from afterwit.promotion.episodes import Event, EventKind
from afterwit.promotion.watch import requests_of
from afterwit.store import Filter, Record, ReviewOutcome, Store, VersionRecord
from afterwit.turn import SHARED, SYSTEM, Kind, Message, Sampled, Turn

Member = TypeVar("Member", bound=StrEnum)

Facts = Mapping[str, Any]

View = Callable[[Request, Gateway, Store], Facts]
"""Reads what a page shows, in the store's thread. May raise TurnNotFound and NotFound."""

PAGE_ROWS, SESSION_TURNS = 40, 12
"""Rows of a page of a list, and turns of a conversation that are shown with their words."""
SOURCE_TURNS, COUNTED_REQUESTS = 5_000, 2_000
"""Newest turns that are counted by source, and requests whose complaints are counted."""
SHOWN_EVENTS = 12
"""Newest holds and alarms that are listed with the versions."""
LONGEST_SEARCH, MOST_CLIENTS = 200, 50
"""Characters of words that are searched for, and clients to choose from."""
MOST_DIGITS = 15
"""Digits of a number in an address."""
SHOWN_MESSAGES, SHOWN_CHARACTERS = 4, 6_000
"""Messages of the prompt that are shown first, and characters of each: its end. A link shows all."""
SHOWN_TOKENS, TABLE_TOKENS = 2_000, 400
"""Tokens of a response that are shown, and those of these that the table lists."""
DOUBTS = (0.9, 0.5, 0.2, 0.05)
"""A token's doubt is the number of these probabilities that are above its own."""
PUSHES = (0.02, 0.2, 0.8)
"""A token's push is the number of these that its advantage exceeds, without the sign."""


class NotFound(Exception):
    """An address without content; the message is for the reader."""


def before(request: Request) -> int | None:
    """The place from which a list continues; None: the newest."""
    return number(request.query_params.get("before", ""))


def number(given: str) -> int | None:
    """The whole number in a part of an address; None if it is not one that anything has."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= MOST_DIGITS else None


def chosen(request: Request, name: str, kind: type[Member]) -> Member | None:
    """The member that a query parameter names; None if it names none."""
    given = request.query_params.get(name, "")
    return kind(given) if given in {member.value for member in kind} else None


def _paged(request: Request, name: str, found: Sequence[Any], key: Callable[[Any], int]) -> dict[str, Any]:
    """The first `PAGE_ROWS` rows of what was read, which is one more if there are older ones."""
    older = key(found[PAGE_ROWS - 1]) if len(found) > PAGE_ROWS else None
    return {name: found[:PAGE_ROWS], "older": older, "first_page": before(request) is None}


def chat(request: Request, gateway: Gateway, store: Store) -> Facts:
    """A new conversation."""
    return {"base_url": base_url(request)}


def sessions(request: Request, gateway: Gateway, store: Store) -> Facts:
    """Sessions, the newest first, of all clients or of one; or the turns in which words were found."""
    words, facts = request.query_params.get("words", "").strip()[:LONGEST_SEARCH], _clients(request, store)
    if words:
        found = store.search(words, scope=facts["client"], before=before(request), limit=PAGE_ROWS)
        asked = urlencode({name: value for name, value in (("words", words), *facts["asked"]) if value})
        shown = {"older": found.before, "first_page": before(request) is None, "sessions": ()}
        return {**facts, **shown, "words": words, "found": found, "asked": asked}
    lines = store.session_lines(scope=facts["client"], before=before(request), limit=PAGE_ROWS + 1)
    asked = urlencode(facts["asked"])
    paged = _paged(request, "sessions", lines, lambda line: line.seq)
    return {**facts, **paged, "words": "", "found": None, "asked": asked}


def _clients(request: Request, store: Store) -> dict[str, Any]:
    """The clients, and the one whose turns alone are asked for."""
    clients = store.clients(limit=MOST_CLIENTS)
    client = request.query_params.get("client")
    known = client if client in clients else None
    return {"clients": clients, "client": known, "asked": [("client", known)] if known else []}


def session(request: Request, gateway: Gateway, store: Store) -> Facts:
    """A session as a conversation: the newest turns, or those up to one, oldest first, each with the messages
    before it."""
    name, start, wanted = request.path_params["session"], before(request), request.query_params.get("turn")
    said = Filter(session=name, practised=False)
    found = store.turn_lines(said, before=start, limit=SESSION_TURNS + 1)
    if wanted is not None and wanted not in [line.turn for line in found[:SESSION_TURNS]]:
        start = store.turn(wanted).seq + 1
        found = store.turn_lines(said, before=start, limit=SESSION_TURNS + 1)
    if not found and start is None:
        raise NotFound("There is no session of this name, or its content was removed.")
    shown = [(line, store.turn(line.turn)) for line in reversed(found[:SESSION_TURNS])]
    newest = next((line for line in found if start is None and line.kind is Kind.MAIN), None)
    return {
        "session": name,
        "newest": newest,
        "chat": CLIENT,
        "lessons": store.lessons_on([line.turn for line in found]),
        "turns": [(line, _said(record), _cut(record.turn.message, whole=False)) for line, record in shown],
        "older": found[SESSION_TURNS - 1].seq if len(found) > SESSION_TURNS else None,
        "first_page": start is None,
        "excluded": name in store.excluded(),
        "given": given(request),
    }


def _said(record: Record) -> list[dict[str, Any]]:
    """The messages of people and tools since the answer before."""
    messages = record.turn.conversation.messages
    after = [place for place, each in enumerate(messages, 1) if each.role == "assistant"]
    new = messages[after[-1] if after else 0 :]
    return [_cut(each, whole=False) for each in new if each.role not in SYSTEM]


def given(request: Request) -> str | None:
    """The effect of the feedback that this address reports; None: it reports none."""
    named = request.query_params.get("given", "")
    known = {state.value.lower(): state for state in State} | {"practised": State.TRAINED}
    return effect(known[named], trains=named in ("judged", "practised")) if named in known else None


def sources(request: Request, gateway: Gateway, store: Store) -> Facts:
    """The turns of each source, and whether complaints become fewer."""
    requests = requests_of(store.all_episodes(limit=COUNTED_REQUESTS))
    return {
        "sources": store.source_lines(newest=SOURCE_TURNS),
        "counted": SOURCE_TURNS,
        "requests": COUNTED_REQUESTS,
        "less": {
            "source": by(requests, lambda each: each.source),
            "kind of task": by(requests, lambda each: each.kind),
        },
    }


def review(request: Request, gateway: Gateway, store: Store) -> Facts:
    """The oldest turns that wait for a person, by the learner's rule."""
    outcome = chosen(request, "outcome", ReviewOutcome)
    rule = with_note(LearnerSettings(), store.note("learn")).teaching
    found = store.withheld(rule, now=gateway.now(), limit=PAGE_ROWS + 1)
    return {
        "records": found[:PAGE_ROWS],
        "more": len(found) > PAGE_ROWS,
        "rule": rule.review.value,
        "outcome": None if outcome is None else outcome.words,
    }


def judge(request: Request, gateway: Gateway, store: Store) -> Facts:
    """Every check of the judge, over the newest judged turns."""
    report = report_of(store)
    return {"known": list(findings(report)), "wrong": list(warnings(report)), "turns": report.turns}


def versions(request: Request, gateway: Gateway, store: Store) -> Facts:
    """Versions, the newest first, with what was held back and what was taken back."""
    found = store.newest_versions(before=before(request), limit=PAGE_ROWS + 1)
    events = list(reversed(store.events()))
    return {
        **_paged(request, "versions", found, lambda version: version.number),
        "served": _served(store, found),
        "adapters": any(version.adapter != SHARED for version in found),
        "confirmed": _confirmed(events),
        "events": [event for event in events if event.kind is not EventKind.CONFIRM][:SHOWN_EVENTS],
        "made": number(request.query_params.get("made", "")),
    }


def version(request: Request, gateway: Gateway, store: Store) -> Facts:
    """A version: its turns, its metrics, and what it lost of what people had approved."""
    wanted = number(request.path_params["version"])
    around = [] if wanted is None else store.newest_versions(before=wanted + 1, limit=PAGE_ROWS)
    if not around or around[0].number != wanted:
        raise NotFound("There is no such version.")
    found = around[0]
    earlier = (each.metrics for each in around[1:] if each.adapter == found.adapter and each.metrics)
    last, learned = next(earlier, {}), store.learned(version=wanted)
    return {
        "version": found,
        "lessons": learned_from(store, [each.turn for each in learned]),
        "newest": store.newest_version(found.adapter),
        "served": _served(store, [found]),
        "confirmed": wanted in _confirmed(store.events()),
        "changes": [(name, last.get(name), value) for name, value in sorted(found.metrics.items())],
        "lost": sorted(found.suite.lost.items()) if found.suite else [],
        "turns": store.turn_lines(Filter(version=wanted), limit=PAGE_ROWS),
        "effects": {each.turn: each.effect for each in learned if each.effect},
    }


def _served(store: Store, versions: Sequence[VersionRecord]) -> frozenset[int]:
    """The newest served version of each of their adapters."""
    return frozenset(store.latest_published(adapter) for adapter in {each.adapter for each in versions})


def _confirmed(events: Sequence[Event]) -> frozenset[int]:
    return frozenset(event.version for event in events if event.kind is EventKind.CONFIRM)


def turns(request: Request, gateway: Gateway, store: Store) -> Facts:
    """Turns, the newest first, of a client, a state, a reason, a kind or a version."""
    clients = _clients(request, store)
    fields: dict[str, Any] = {
        "state": chosen(request, "state", State),
        "reason": chosen(request, "reason", Reason),
        "kind": chosen(request, "kind", Kind),
        "version": number(request.query_params.get("version", "")),
    }
    where = Filter(**fields, scope=clients["client"])
    found = store.turn_lines(where, before=before(request), limit=PAGE_ROWS + 1)
    return {
        **_paged(request, "turns", found, lambda line: line.seq),
        **clients,
        "where": where,
        "asked": urlencode(
            [*((n, value) for n, value in fields.items() if value is not None), *clients["asked"]]
        ),
        "states": list(State),
    }


def turn(request: Request, gateway: Gateway, store: Store) -> Facts:
    """A turn: the end of its prompt, its response token by token, what followed, votes, hints."""
    whole = "all" in request.query_params
    record = store.turn(store.resolve(request.path_params["turn"]))
    found = record.turn
    messages = found.conversation.rendered
    kept = messages if whole else messages[-SHOWN_MESSAGES:]
    effects = [(each.version, each.effect) for each in store.learned(turns=[found.id]) if each.effect]
    taught, advantages = next(
        ((version, effect.advantages) for version, effect in reversed(effects) if effect.advantages),
        (None, ()),
    )
    followed = record.next_state.messages if record.next_state else ()
    sampled = found.sampled if isinstance(found, Turn) else None
    decode = gateway.renderer.decode
    return {
        "record": record,
        "turn": found,
        "lesson": store.lessons_on([found.id]).get(found.id),
        "sampled": sampled,
        "messages": [_cut(message, whole=whole) for message in kept],
        "earlier": len(messages) - len(kept),
        "followed": [_cut(message, whole=whole) for message in followed],
        "tokens": tokens_of(sampled, decode, limit=SHOWN_TOKENS, advantages=advantages) if sampled else [],
        "taught": taught,
        "effects": effects,
        "whole": whole,
        "most": SHOWN_TOKENS,
        "most_in_table": TABLE_TOKENS,
        "given": given(request),
    }


def _cut(message: Message, *, whole: bool) -> dict[str, Any]:
    text = message.content or ""
    left_out = 0 if whole else max(0, len(text) - SHOWN_CHARACTERS)
    return {"role": message.role, "text": text[left_out:], "left_out": left_out, "calls": message.tool_calls}


class Token(NamedTuple):
    """One token, or the few that make one character."""

    text: str
    first: int
    probability: float
    """The product, if they are several."""
    version: int
    forced: bool
    advantage: float | None
    """In the update, the strongest of several tokens; None: unknown."""
    doubt: int
    """0: the policy was sure, to 4: the token was unlikely."""
    push: str
    """`none`, or `up` or `down` with its strength from 1 to 3."""


def tokens_of(
    sampled: Sampled,
    decode: Callable[[Sequence[int]], str],
    *,
    limit: int,
    advantages: Sequence[float] = (),
) -> list[Token]:
    """The first `limit` tokens, with the advantage of each id if known. Parts of a character are joined."""
    found, ids, start = list[Token](), sampled.ids[:limit], 0
    while start < len(ids):
        ends = range(start + 1, min(start + LONGEST_CHARACTER, len(ids)) + 1)
        end = next((end for end in ends if BROKEN not in decode(ids[start:end])), start + 1)
        probability = math.exp(min(math.fsum(sampled.logprobs[start:end]), 0.0))
        advantage = max(advantages[start:end], key=abs, default=None)
        strength = sum(abs(advantage or 0.0) > bound for bound in PUSHES)
        found.append(
            Token(
                text=decode(ids[start:end]),
                first=start,
                probability=probability,
                version=sampled.versions[start],
                forced=all(sampled.forced[start:end]),
                advantage=advantage,
                doubt=sum(probability < bound for bound in DOUBTS),
                push=f"{'up' if (advantage or 0.0) > 0 else 'down'}{strength}" if strength else "none",
            )
        )
        start = end
    return found
