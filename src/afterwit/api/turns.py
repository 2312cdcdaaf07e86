"""The nouns, for every package: turns, verdicts, versions and errors. Needs the standard library only."""

from afterwit.errors import AfterwitError, EngineError, EngineUnavailable, RequestError, SettingError
from afterwit.ids import ENTROPY_BYTES, call_id, turn_id
from afterwit.lifecycle import Reason, ReasonClass
from afterwit.message import Conversation, Message, ToolCall
from afterwit.teacher import TeacherRow, is_logprob
from afterwit.turn import Finish, Kind, Sampled, Sampling, Turn, scoring_temperature
from afterwit.verdict import Feedback, NextState, Verdict
from afterwit.version import Origin, Version

__all__ = [
    "ENTROPY_BYTES",
    "AfterwitError",
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
    "Sampled",
    "Sampling",
    "SettingError",
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
