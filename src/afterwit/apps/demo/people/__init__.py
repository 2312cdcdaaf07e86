"""Simulated people with an ordinary agent: they give tasks, watch, react; and held-out tasks that measure."""

from afterwit.apps.demo.people.agent import (
    MODEL,
    SIDE,
    TEMPERATURE,
    Agent,
    Answer,
    Ask,
    Responder,
    Script,
    calls,
    opening,
    request_body,
    work,
)
from afterwit.apps.demo.people.evaluation import (
    MEASURE,
    PEOPLE,
    SEED,
    Score,
    Trial,
    evaluate,
    held_out,
    trial,
)
from afterwit.apps.demo.people.person import Interaction, Manner, interaction, run_interaction

__all__ = [
    "MEASURE",
    "MODEL",
    "PEOPLE",
    "SEED",
    "SIDE",
    "TEMPERATURE",
    "Agent",
    "Answer",
    "Ask",
    "Interaction",
    "Manner",
    "Responder",
    "Score",
    "Script",
    "Trial",
    "calls",
    "evaluate",
    "held_out",
    "interaction",
    "opening",
    "request_body",
    "run_interaction",
    "trial",
    "work",
]
