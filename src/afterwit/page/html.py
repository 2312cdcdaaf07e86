"""HTML from templates, and the headers of a page.

The template engine escapes every value, and styles and scripts come only from this server's files: the text
of a conversation can neither become markup nor run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response

from afterwit.lifecycle import State
from afterwit.progress import in_points
from afterwit.text import counted
from afterwit.turn import one_line

HERE = Path(__file__).parent
STATIC = HERE / "static"
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send forms with the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

STATES: Mapping[State, str] = {
    State.OPEN: "waits for what follows",
    State.ANSWERED: "waits for the judge",
    State.JUDGED: "waits to be learned from",
    State.TRAINED: "learned",
    State.SKIPPED: "not learned",
}


def rendered(template: str, facts: Mapping[str, Any]) -> str:
    """The HTML of a template with these facts."""
    return _templates().get_template(template).render(facts)


def html(text: str, *, status: int = 200) -> Response:
    """A page that no cache stores."""
    headers = {**HEADERS, "cache-control": "no-store"}
    return Response(text, status_code=status, media_type="text/html", headers=headers)


@cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """A static file and its media type, or None."""
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in KINDS}
    path = known.get(name)
    return None if path is None else (path.read_bytes(), KINDS[path.suffix])


@cache
def static_url(name: str) -> str:
    """The address of a static file. It changes with the file, so browsers may cache it for ever."""
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
        "plain": plain,
        "state_words": STATES.__getitem__,
        "signed": {None: "", -1: "\u22121", 0: "0", 1: "+1"}.__getitem__,
        "count": counted,
        "points": in_points,
        "one_line": partial(one_line, width=160),
    }
    return made


def when(seconds: float | None) -> Markup:
    """A time in UTC, which the page's script converts to local time; empty for None."""
    if seconds is None:
        return Markup("")
    moment = time.gmtime(seconds)
    exact, short = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment), time.strftime("%Y-%m-%d %H:%M UTC", moment)
    return Markup('<time datetime="{}">{}</time>').format(exact, short)


def plain(name: str) -> str:
    """`mismatch_mean` -> `mismatch mean`."""
    return name.replace("_", " ")
