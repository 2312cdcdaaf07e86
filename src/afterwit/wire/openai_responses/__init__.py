"""The dialect of OpenAI's Responses API."""

from afterwit.wire.dialect import Dialect, ReferringParser, StoredResponses, TokenCount
from afterwit.wire.openai_responses.encoder import encoder
from afterwit.wire.openai_responses.errors import error_body
from afterwit.wire.openai_responses.references import references_of
from afterwit.wire.openai_responses.request import parse_request
from afterwit.wire.openai_responses.response import count_body, stored_body

PATH = "/v1/responses"
PARSE = ReferringParser(references=references_of, parse=parse_request)

OPENAI_RESPONSES = Dialect(
    name="openai_responses",
    path=PATH,
    parse=PARSE,
    encoder=encoder,
    error_body=error_body,
    extra_routes=(
        TokenCount(path=f"{PATH}/input_tokens", parse=PARSE, body=count_body),
        StoredResponses(path=f"{PATH}/{{response}}", body=stored_body),
    ),
)

__all__ = ["OPENAI_RESPONSES"]
