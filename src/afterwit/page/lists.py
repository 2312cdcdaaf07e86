"""Sessions, and the turns of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.judging.check_stage import known_of_judge, report_of
from afterwit.judging.checks import warnings
from afterwit.learning.schedule import with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.page.view import NotFound, Wanted, before, chosen
from afterwit.progress import by
from afterwit.promotion.watch import requests_of
from afterwit.store import Filter, ReviewOutcome, Store
from afterwit.teaching.review import WHY, WORDS, waiting_for_review

PAGE = 30

TURNS = 50


def view(request: Request, gateway: Gateway) -> Wanted:
    """Sessions, the newest first."""
    start = before(request)

    def read(store: Store) -> Mapping[str, Any]:
        found = store.session_lines(before=start, limit=PAGE + 1)
        older = found[PAGE - 1].seq if len(found) > PAGE else None
        return {"sessions": found[:PAGE], "older": older, "first_page": start is None}

    return Wanted(template="sessions.html", read=read)


def one(request: Request, gateway: Gateway) -> Wanted:
    """The turns of a session, the newest first."""
    session, start = request.path_params["session"], before(request)

    def read(store: Store) -> Mapping[str, Any]:
        found = store.turn_lines(Filter(session=session), before=start, limit=TURNS + 1)
        if not found and start is None:
            raise NotFound("There is no session of this name, or its content was removed.")
        older = found[TURNS - 1].seq if len(found) > TURNS else None
        return {
            "session": session,
            "turns": found[:TURNS],
            "older": older,
            "first_page": start is None,
            "excluded": session in store.excluded(),
        }

    return Wanted(template="session.html", read=read)


SOURCE_TURNS = 5_000
"""Turns that are counted, the newest ones."""

REQUESTS = 2_000
"""Requests whose complaints are counted, the newest ones."""


def sources_view(request: Request, gateway: Gateway) -> Wanted:
    """All sources of these turns."""

    def read(store: Store) -> Mapping[str, Any]:
        requests = requests_of(store.all_episodes(limit=REQUESTS))
        return {
            "sources": store.source_lines(newest=SOURCE_TURNS),
            "counted": SOURCE_TURNS,
            "requests": REQUESTS,
            "less": {
                "source": by(requests, lambda each: each.source),
                "kind of task": by(requests, lambda each: each.kind),
            },
        }

    return Wanted(template="sources.html", read=read)


def review_view(request: Request, gateway: Gateway) -> Wanted:
    """The oldest turns that wait, by the rule that the learner goes by."""
    outcome = chosen(request, "outcome", ReviewOutcome)

    def read(store: Store) -> Mapping[str, Any]:
        rule = with_note(LearnerSettings(), store.note("learn")).teaching
        found = waiting_for_review(store, rule, now=gateway.now(), limit=PAGE + 1)
        return {
            "records": found[:PAGE],
            "more": len(found) > PAGE,
            "why": WORDS,
            "rule": rule.review.value,
            "outcome": None if outcome is None else WHY[outcome],
        }

    return Wanted(template="review.html", read=read)


def judge_view(request: Request, gateway: Gateway) -> Wanted:
    """Every check, over the newest judged turns."""

    def read(store: Store) -> Mapping[str, Any]:
        report = report_of(store)
        return {"known": list(known_of_judge(report)), "wrong": list(warnings(report)), "turns": report.turns}

    return Wanted(template="judge.html", read=read)
