"""Turns, verdicts, versions and errors, for every package. Needs the standard library only."""

from afterwit.engines.port import TeacherRow, is_logprob
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable, RequestError, SettingError
from afterwit.lifecycle import Reason, ReasonClass, State
from afterwit.turn import (
    ENTROPY_BYTES,
    Basis,
    Conversation,
    Finish,
    Kind,
    Message,
    Sampling,
    ToolCall,
    Turn,
    call_id,
    scoring_temperature,
    turn_id,
)
from afterwit.verdict import Feedback, NextState, Verdict
from afterwit.version import Origin, Version

__all__ = [
    "ENTROPY_BYTES",
    "AfterwitError",
    "Basis",
    "Conversation",
    "EngineError",
    "EngineUnavailable",
    "Feedback",
    "Finish",
    "Kind",
    "Message",
    "NextState",
    "Origin",
    "Reason",
    "ReasonClass",
    "RequestError",
    "Sampling",
    "SettingError",
    "State",
    "TeacherRow",
    "ToolCall",
    "Turn",
    "Verdict",
    "Version",
    "call_id",
    "is_logprob",
    "scoring_temperature",
    "turn_id",
]
