"""The log of a model server, read for people: why it failed, and how far it has come. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

LAST_LINES, AFTER_CAUSE = 15, 3
"""Lines of its end that an error shows: alone, and after the cause."""
DETAILS = 4
"""Lines of a cause beyond its first."""
LONGEST = 400
"""Characters of a line."""
OWN = re.compile(
    r"^(?:\([^)]*\bpid=\d+\) ?)?"  # vLLM: (EngineCore pid=7) ERROR 11-26 01:12:50 [core.py:1510]
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?: \[[^\]]*\])? ?)?"
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ?)?"  # SGLang: [2026-11-26 01:12:50 TP0]
)
"""What a server writes before a line's words."""
RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure)?(?::|$)")
"""The line of a traceback that names what was raised."""
BEGINS = "Traceback (most recent call last):"
STEPS = (
    ("ready", ("Application startup complete", "Starting vLLM server on", "fired up and ready")),
    ("capturing graphs", ("Capturing CUDA graphs", "Capture cuda graph begin")),
    ("making room for keys and values", ("KV cache size:", "KV cache layout", "KV Cache is allocated")),
    ("compiling", ("Dynamo bytecode transform", "Compiling a graph", "torch.compile takes")),
    ("loading the weights", ("Starting to load model", "Load weight begin")),
    ("starting its engine", ("Initializing a V1 LLM engine", "Init torch distributed begin")),
    ("reading the model's configuration", ("non-default args:", "server_args=")),
)
"""How far it has come, the furthest first, and what it logs then."""


def step_of(log: str) -> str:
    """How far a server has come that logged this."""
    found = (step for step, words in STEPS if any(each in log for each in words))
    return next(found, "importing its libraries")


def cause_of(lines: Sequence[str]) -> list[str]:
    """What the log's first traceback ends with: later ones only pass it on. [] if there is none."""
    inside = False
    for place, line in enumerate(lines):
        words = OWN.sub("", line)
        if BEGINS in words:
            inside = True
        elif inside and RAISED.match(words):
            more = [OWN.sub("", each) for each in lines[place + 1 : place + 1 + DETAILS]]
            end = next((at for at, each in enumerate(more) if not each.startswith((" ", "\t"))), len(more))
            return [each[:LONGEST] for each in (words, *more[:end])]
    return []


def end_of(log: str, where: object) -> str:
    """Why a server is gone that logged this, for people: the cause, the end, and where the log is."""
    lines = log.splitlines()
    if cause := cause_of(lines):
        end = lines[-AFTER_CAUSE:]
        return "\n".join(["It failed with:", *cause, f"The end of its log, {where}:", *end])
    return "\n".join([f"The end of its log, {where}:", *lines[-LAST_LINES:]])
