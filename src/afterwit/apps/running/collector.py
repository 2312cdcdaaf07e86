"""What Python's cyclic garbage collector is told in a process that serves."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""Objects that are made before the collector looks for cycles among them; Python's own number is 700. Most of
what a request makes dies by itself, and looking at it took a fifth of the request's CPU time (`benchmarks
gateway`, row G2)."""


def spare_what_stays() -> None:
    """Leave alone what a started process keeps for ever, and look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
