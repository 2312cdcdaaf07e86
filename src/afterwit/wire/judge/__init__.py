"""What the judge is sent and what it answers: the two prompts, the fences in them, and its HTTP JSON."""

from afterwit.wire.judge.chat import PATH, answer_of, complaint, request_body
from afterwit.wire.judge.full_prompts import FullPrompts
from afterwit.wire.judge.short_prompts import ShortPrompts

__all__ = ["PATH", "FullPrompts", "ShortPrompts", "answer_of", "complaint", "request_body"]
