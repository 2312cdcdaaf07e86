"""One turn in the gateway: prepared, bound, sampled, sent and recorded."""

from afterwit.stages.gateway.turn.binder import Bound, bind_request
from afterwit.stages.gateway.turn.checks import check_capabilities, check_model, check_token_ids
from afterwit.stages.gateway.turn.choice import Choice
from afterwit.stages.gateway.turn.prepare import Prompt, count_tokens, prepare
from afterwit.stages.gateway.turn.recorder import Recorder, try_store
from afterwit.stages.gateway.turn.reply import Reply
from afterwit.stages.gateway.turn.request import PreparedRequest
from afterwit.stages.gateway.turn.response import RunningResponse
from afterwit.stages.gateway.turn.writer import ResponseWriter

__all__ = [
    "Bound",
    "Choice",
    "PreparedRequest",
    "Prompt",
    "Recorder",
    "Reply",
    "ResponseWriter",
    "RunningResponse",
    "bind_request",
    "check_capabilities",
    "check_model",
    "check_token_ids",
    "count_tokens",
    "prepare",
    "try_store",
]
