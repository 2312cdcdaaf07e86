"""The language model's head, fused with the loss: only a chunk of rows has logits at a time.

    head                hidden states to logits, and a gradient of logits back to states and weights
    matmuls             how its matrix products are computed on a device
    low_rank            what LoRA adds to it
    sizes               rows of a chunk and of a tile that suit a device
    compiled            functions of logits that torch compiles on a GPU
    softmax             log-probs of a row's logits at its temperature
    top_k               exact top-K in two stages
    score               without gradient: top-K and log-probs at ids
    scoring_input, targets      phase one of the objective, from hidden states
    rows, collect       the rows of a micro-batch that train, with their weights
    terms               the terms of a chunk of rows, and their gradient
    loss                phase two of the objective: the loss, and its gradient in the same walk

The reference, and the fallback, is `objective.target.prepare` with `objective.sample_loss`.
"""

from afterwit.fused_head.collect import collect_rows
from afterwit.fused_head.head import Head, HeadGradients
from afterwit.fused_head.loss import FusedLoss, Reference, fused_loss
from afterwit.fused_head.low_rank import LowRank
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.scoring_input import ScoringInput
from afterwit.fused_head.targets import targets

__all__ = [
    "FusedLoss",
    "Head",
    "HeadGradients",
    "LowRank",
    "Reference",
    "Rows",
    "ScoringInput",
    "collect_rows",
    "fused_loss",
    "targets",
]
