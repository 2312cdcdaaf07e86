"""Responses through a model: rows, packing, states or logits, the model's own head."""

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
