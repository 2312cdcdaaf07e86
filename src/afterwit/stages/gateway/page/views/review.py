"""The turns that wait for a person, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from afterwit.learner.announce import with_note
from afterwit.learner.settings import LearnerSettings
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.views.view import Wanted, chosen
from afterwit.stages.review import WHY, WORDS, waiting_for_review
from afterwit.store import ReviewOutcome, Store

PAGE = 30


def view(request: Request, gateway: Gateway) -> Wanted:
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
