"""Simulated people with an ordinary agent: they give tasks, watch, react; and held-out tasks that measure."""

from afterwit.apps.demo.people.agent import SIDE, TEMPERATURE, Agent, Answer, Ask, Responder, Script, calls
from afterwit.apps.demo.people.evaluate import (
    MEASURE,
    PEOPLE,
    SEED,
    Score,
    Trial,
    evaluate,
    held_out,
    trial,
)
from afterwit.apps.demo.people.person import Interaction, interaction, run_interaction

__all__ = [
    "MEASURE",
    "PEOPLE",
    "SEED",
    "SIDE",
    "TEMPERATURE",
    "Agent",
    "Answer",
    "Ask",
    "Interaction",
    "Responder",
    "Score",
    "Script",
    "Trial",
    "calls",
    "evaluate",
    "held_out",
    "interaction",
    "run_interaction",
    "trial",
]
