"""The sentence of a pause. Pure."""

from __future__ import annotations

from afterwit.store import Pause


def on_person(pause: Pause) -> str:
    """That a person paused learning, and what goes on."""
    why = f" ({pause.words})" if pause.words else ""
    return f"learning is paused{why}; turns are recorded and judged, and wait; `afterwit resume` goes on"
