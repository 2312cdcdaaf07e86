"""Responses through a model, as logits or as the hidden states that its head reads.

rows      a prompt with the response that is scored
packing   whether rows share their work, and how they are cut into passes
layout    rows as a model's input
score     rows through the model
lm_head   the model's head, for the fused loss
"""

from afterwit.learner.scoring.lm_head import fused_head, head_of
from afterwit.learner.scoring.packing import MicroBatch, Packing, token_ratio
from afterwit.learner.scoring.rows import Row
from afterwit.learner.scoring.score import (
    probe,
    response_logits,
    response_states,
    stream_logits,
    stream_states,
)

__all__ = [
    "MicroBatch",
    "Packing",
    "Row",
    "fused_head",
    "head_of",
    "probe",
    "response_logits",
    "response_states",
    "stream_logits",
    "stream_states",
    "token_ratio",
]
