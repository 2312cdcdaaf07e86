"""HTML from templates, and the headers that keep a page to itself.

Every value is escaped by the template engine. Styles and scripts come from files of this server alone, so
what a conversation says can neither become markup nor run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response

from afterwit.stages.gateway.page import words

HERE = Path(__file__).parent
STATIC = HERE / "static"
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send forms with the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def rendered(template: str, facts: Mapping[str, Any]) -> str:
    """The HTML of a template with these facts."""
    return _templates().get_template(template).render(facts)


def html(text: str, *, status: int = 200) -> Response:
    """A page that is kept by nobody."""
    headers = {**HEADERS, "cache-control": "no-store"}
    return Response(text, status_code=status, media_type="text/html", headers=headers)


@cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """A file of the page and its media type; None if it has none of that name."""
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in KINDS}
    path = known.get(name)
    return None if path is None else (path.read_bytes(), KINDS[path.suffix])


@cache
def static_url(name: str) -> str:
    """The address of a file of the page. It changes with the file, so browsers may keep what they have."""
    found = static_file(name)
    if found is None:
        raise ValueError(f"the page has no file {name}")
    return f"/ui/static/{name}?v={hashlib.sha256(found[0]).hexdigest()[:12]}"


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["static"] = static_url
    made.filters |= {
        "when": when,
        "plain": words.plain,
        "state_words": words.STATES.__getitem__,
        "reason_words": words.reason,
        "signed": words.signed,
        "count": words.count,
        "one_line": words.one_line,
    }
    return made


def when(seconds: float | None) -> Markup:
    """A time in UTC, which the page's script turns into the reader's own; nothing for None."""
    if seconds is None:
        return Markup("")
    moment = time.gmtime(seconds)
    exact, short = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment), time.strftime("%Y-%m-%d %H:%M UTC", moment)
    return Markup('<time datetime="{}">{}</time>').format(exact, short)
