"""Requests and responses in the common form, for packages that add a client protocol."""

from afterwit.dialects.dialect import (
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    Encoder,
    ParsedCall,
    ReasoningDelta,
    ResponseHead,
    TextDelta,
    Usage,
)
from afterwit.dialects.fields import as_list, as_object, as_text, omitted
from afterwit.dialects.request import ModelRequest, RequestLimits

__all__ = [
    "CallDelta",
    "ChoiceDelta",
    "ChoiceEnd",
    "Dialect",
    "Encoder",
    "ModelRequest",
    "ParsedCall",
    "ReasoningDelta",
    "RequestLimits",
    "ResponseHead",
    "TextDelta",
    "Usage",
    "as_list",
    "as_object",
    "as_text",
    "omitted",
]
