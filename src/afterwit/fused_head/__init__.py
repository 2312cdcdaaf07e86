"""The head, fused with what is read off its logits: no [N, V] matrix outlives a chunk of rows.

    head            hidden states to logits, and a gradient of logits back to states and weights
    products        how its matrix products are taken on a device
    low_rank        what LoRA adds to it
    sizes           how many rows at a time suit a device
    one_pass        work on logits, compiled on a GPU
    softmax         what turns a row's logits into log-probs at its temperature
    top             exact top-K in two stages
    score           without gradient: top-K, log-probs at ids, logsumexp
    pupil, targets  phase one of the objective, from hidden states
    rows, flatten   the rows of a pass that train, with their weights
    few, whole      the terms that read a few ids of a row, or its whole distribution; and their slopes
    grade, learn    phase two of the objective: loss, and gradient in the forward

The plain way, `objective.target.prepare` and `objective.hybrid.share`, is the reference and the fallback.
"""
