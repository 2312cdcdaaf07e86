"""Requests and responses in the common form, for packages that add a client protocol."""

from afterwit.dialects.dialect import Dialect, Encoder
from afterwit.dialects.fields import as_list, as_object, as_text, omitted
from afterwit.dialects.request import ModelRequest, RequestLimits
from afterwit.dialects.response import (
    CallDelta,
    ChoiceDelta,
    ChoiceEnd,
    ParsedCall,
    ReasoningDelta,
    ResponseHead,
    TextDelta,
    Usage,
)

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
