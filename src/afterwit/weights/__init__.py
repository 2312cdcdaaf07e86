"""Sets of weights over one model.

twin    the same model with other values of some weights, sharing all the others
lora    an adapter in PEFT's format, put on a model: merged, or beside its weights
"""
