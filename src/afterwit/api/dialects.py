"""Requests and responses in the common form, for packages that add a client protocol."""

from afterwit.dialects.dialect import Dialect
from afterwit.dialects.fields import as_list, as_object, as_text
from afterwit.dialects.request import ModelRequest, RequestLimits
from afterwit.dialects.response import ChoiceDelta, ChoiceEnd, ResponseHead, TextDelta, Usage

__all__ = [
    "ChoiceDelta",
    "ChoiceEnd",
    "Dialect",
    "ModelRequest",
    "RequestLimits",
    "ResponseHead",
    "TextDelta",
    "Usage",
    "as_list",
    "as_object",
    "as_text",
]
