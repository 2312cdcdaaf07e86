"""`afterwit doctor`: self-tests of this installation; each says in a sentence what to do about a fault.

machine       home, disk, port, device
checkpoints   the hashes of learned versions
model         template, tokenizer, empty hint
mathematics   what an update computes: the teacher's weights, no hint, another hint, packed and alone
engine        sampled log-probs, and the swap, against the learner's
store         that it opens with this model, and the stages' health
judge         one question, whose answer must hold a vote
"""
