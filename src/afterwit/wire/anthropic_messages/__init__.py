"""The dialect of Anthropic's Messages API."""

from afterwit.wire.anthropic_messages.encoder import encoder
from afterwit.wire.anthropic_messages.errors import error_body
from afterwit.wire.anthropic_messages.request import parse_request
from afterwit.wire.dialect import Dialect, TokenCount

_PATH = "/v1/messages"

ANTHROPIC_MESSAGES = Dialect(
    name="anthropic_messages",
    path=_PATH,
    parse=parse_request,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(
            path=_PATH + "/count_tokens", parse=parse_request, body=lambda tokens: {"input_tokens": tokens}
        ),
    ),
    request_id_header="request-id",
)

__all__ = ["ANTHROPIC_MESSAGES"]
