"""What OpenAI's two dialects, chat completions and Responses, write alike."""

from afterwit.wire.openai.content import arguments_text, text_of
from afterwit.wire.openai.errors import error_form, error_type
from afterwit.wire.openai.logprobs import logprob_objects
from afterwit.wire.openai.sampling import parse_sampling
from afterwit.wire.openai.template_args import parse_template_args

__all__ = [
    "arguments_text",
    "error_form",
    "error_type",
    "logprob_objects",
    "parse_sampling",
    "parse_template_args",
    "text_of",
]
