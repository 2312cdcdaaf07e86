"""The first view: whether people correct the model less, their lessons, and orders about one lesson."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.learning.schedule import with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.page.chat import base_url
from afterwit.page.lists import Facts, NotFound, before, number
from afterwit.practice import table
from afterwit.progress import progress
from afterwit.promotion.watch import requests_asked
from afterwit.store import Store

LESSONS = 12
"""Lessons that are shown at once."""
DONE = {
    "undo": "The lesson is dropped. What practised it, if anything did, is unlearned next.",
    "drop": "The lesson is not practised any more.",
    "edit": "The lesson is taught in these words from now on.",
    "restrict": "The lesson is practised on the prompts that you chose.",
    "accept": "The lesson is practised on other prompts of its kind too.",
}
"""A sentence for each order that was carried out."""


def home(request: Request, gateway: Gateway, store: Store) -> Facts:
    """The verdict, and the lessons last given, of all keys or of one."""
    given, start = store.lessons_given(), before(request) or 0
    sources, source = sorted({each.source for each in given}), request.query_params.get("source")
    found, end = [each.number for each in given if source in (None, each.source)], start + LESSONS
    return _shown(request, store, found[start:end]) | {
        "alone": False,
        "sources": sources,
        "source": source,
        "asked": "" if source is None else urlencode({"source": source}),
        "older": end if end < len(found) else None,
        "first_page": not start,
        "none_yet": None if found else table.none_yet(store),
        "empty": not sources and not store.turn_lines(limit=1),
    }


def lesson(request: Request, gateway: Gateway, store: Store) -> Facts:
    """One lesson, and what was just ordered about it."""
    wanted = number(request.path_params["lesson"])
    found = [] if wanted is None else [wanted]
    if not store.lessons(numbers=found):
        raise NotFound("There is no such lesson; it may have been forgotten with its conversations.")
    alone = {"alone": True, "sources": (), "asked": "", "first_page": True}
    return _shown(request, store, found) | alone | dict.fromkeys(("source", "older", "none_yet", "empty"))


def _shown(request: Request, store: Store, numbers: Sequence[int]) -> dict[str, object]:
    statuses = {each.stage: each for each in store.statuses()}
    found = sorted(store.lessons(numbers=numbers), key=lambda each: numbers.index(each.number))
    rule, asked = with_note(LearnerSettings(), store.note("learn")).teaching, requests_asked(store)
    return {
        "verdict": progress(asked),
        "rows": table.lessons(store, rule, asked, of=found),
        "practice": statuses.get("practice"),
        "learner": statuses.get("learn"),
        "pause": store.paused(),
        "done": DONE.get(request.query_params.get("done", "")),
        "base_url": base_url(request),
    }


def carry_out(order: str, number: int, fields: Mapping[str, str], gateway: Gateway, store: Store) -> None:
    """One of the orders of `DONE` about a lesson, with a form's fields. SettingError if it cannot be done."""
    now = gateway.now()
    if order == "undo":
        table.order_unlearning(store, number, now=now)
    elif order == "drop":
        table.drop(store, number, now=now)
    elif order == "edit":
        table.edit(store, number, fields.get("words", ""), gateway.redaction, now=now)
    elif order == "restrict":
        table.restrict(store, number, fields.get("client") or None, now=now)
    else:
        table.accept(store, number)
