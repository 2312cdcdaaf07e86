"""The head, fused with what is read off its logits: hidden states in, and no [N, V] matrix that outlives a chunk.

    head            hidden states to logits, and a gradient of logits back to states and weights
    softmax         what turns a row's logits into log-probs at its temperature
    top             exact top-K in two stages
    score           without gradient: top-K, log-probs at ids, logsumexp
    targets         phase one of the objective, from hidden states
    rows            the rows of a pass that train, with their weights
    grade, whole    a chunk's loss, and its gradient in place of its logits
    learn           phase two of the objective: loss, and gradient in the forward

The plain way, `objective.target.prepare` and `objective.hybrid.share`, is the reference of all this and the fallback.
"""
