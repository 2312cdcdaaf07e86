"""The views of the page: each says what it reads of the store, and which template shows it."""

from __future__ import annotations

from collections.abc import Mapping

from afterwit.page import home as curves
from afterwit.page import home as log
from afterwit.page import home as overview
from afterwit.page import lists as judge
from afterwit.page import lists as review
from afterwit.page import lists as sessions
from afterwit.page import lists as sources
from afterwit.page import turns, versions
from afterwit.page.view import View

VIEWS: Mapping[str, View] = {
    "/ui": overview.view,
    "/ui/sessions": sessions.view,
    "/ui/sessions/{session:path}": sessions.one,
    "/ui/turns": turns.view,
    "/ui/turns/{turn}": turns.one,
    "/ui/versions": versions.view,
    "/ui/versions/{version}": versions.one,
    "/ui/review": review.review_view,
    "/ui/sources": sources.sources_view,
    "/ui/judge": judge.judge_view,
    "/ui/curves": curves.curves_view,
    "/ui/log": log.log_view,
}
"""By address."""
