"""The engine port and the model's text, for packages that sample, score, or add an engine."""

from afterwit.chat_format.render import Renderer
from afterwit.chat_format.tool_schema import schema_error
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.kinds import EngineKind, open_engine
from afterwit.engines.model_files import facts_of
from afterwit.engines.port import (
    Capabilities,
    Constraint,
    Engine,
    Facts,
    Generate,
    Score,
    Scored,
    Step,
    TopLogprobs,
    Weights,
    check_fits,
)
from afterwit.errors import ContextExceeded, RequestRefused
from afterwit.gateway.prepare import Prompt
from afterwit.gateway.reply import Reply, respond

__all__ = [
    "Capabilities",
    "Constraint",
    "ContextExceeded",
    "EmbeddedSettings",
    "Engine",
    "EngineKind",
    "Facts",
    "Generate",
    "Prompt",
    "Renderer",
    "Reply",
    "RequestRefused",
    "Score",
    "Scored",
    "Step",
    "TopLogprobs",
    "Weights",
    "check_fits",
    "facts_of",
    "open_engine",
    "respond",
    "schema_error",
]
