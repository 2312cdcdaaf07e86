"""`afterwit doctor`: self-tests of this installation; each says in a sentence what to do about a fault.

machine       home, disk, port, device
checkpoints   the hashes of learned versions
model         template, tokenizer, empty hint
mathematics   what an update computes: the teacher's weights, no hint, another hint, packed and alone
engine        sampled log-probs, and the swap, against the learner's own
store         the store's binding, and the stages' own words
judge         a question that it must answer
"""
