"""The engine port and the model's text, for packages that sample, score, or add an engine."""

from afterwit.chat_format.detokenize import Detokenizer
from afterwit.chat_format.families import holds_unread_call
from afterwit.chat_format.parse import ResponseParser
from afterwit.chat_format.render import Renderer
from afterwit.chat_format.tool_schema import schema_error
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import EngineKind, open_engine
from afterwit.engines.port import Capabilities, Engine, Facts, Generate, Score, Scored, Step, Weights
from afterwit.gateway.prepare import prepare
from afterwit.gateway.reply import Reply

__all__ = [
    "Capabilities",
    "Detokenizer",
    "EmbeddedSettings",
    "Engine",
    "EngineKind",
    "Facts",
    "Generate",
    "Renderer",
    "Reply",
    "ResponseParser",
    "Score",
    "Scored",
    "Step",
    "Weights",
    "holds_unread_call",
    "open_engine",
    "prepare",
    "schema_error",
]
