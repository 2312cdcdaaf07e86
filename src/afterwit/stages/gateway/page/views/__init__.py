"""The views of the page: each says what it reads of the store, and which template shows it."""

from __future__ import annotations

from collections.abc import Mapping

from afterwit.stages.gateway.page.views import (
    curves,
    judge,
    log,
    overview,
    review,
    sessions,
    sources,
    turns,
    versions,
)
from afterwit.stages.gateway.page.views.view import NotFound, View, Wanted

VIEWS: Mapping[str, View] = {
    "/ui": overview.view,
    "/ui/sessions": sessions.view,
    "/ui/sessions/{session:path}": sessions.one,
    "/ui/turns": turns.view,
    "/ui/turns/{turn}": turns.one,
    "/ui/versions": versions.view,
    "/ui/versions/{version}": versions.one,
    "/ui/review": review.view,
    "/ui/sources": sources.view,
    "/ui/judge": judge.view,
    "/ui/curves": curves.view,
    "/ui/log": log.view,
}
"""By address."""

__all__ = ["VIEWS", "NotFound", "View", "Wanted"]
