"""What OpenAI's two dialects, chat completions and Responses, write alike."""

from afterwit.wire.openai.content import custom_arguments, text_of
from afterwit.wire.openai.errors import error_form, error_type
from afterwit.wire.openai.logprobs import logprob_objects, parse_top_logprobs
from afterwit.wire.openai.response_format import parse_form
from afterwit.wire.openai.sampling import parse_sampling
from afterwit.wire.openai.template_args import parse_template_args

__all__ = [
    "custom_arguments",
    "error_form",
    "error_type",
    "logprob_objects",
    "parse_form",
    "parse_sampling",
    "parse_template_args",
    "parse_top_logprobs",
    "text_of",
]
