"""The dialect of OpenAI's chat completions."""

from afterwit.wire.dialect import Dialect
from afterwit.wire.openai_chat.encoder import encoder
from afterwit.wire.openai_chat.errors import error_body
from afterwit.wire.openai_chat.messages import parse_messages
from afterwit.wire.openai_chat.request import parse_request

OPENAI_CHAT = Dialect(
    name="openai_chat",
    path="/v1/chat/completions",
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
)

__all__ = ["OPENAI_CHAT", "parse_messages"]
