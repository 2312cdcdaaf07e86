"""Models and their weights.

load    a model folder through transformers, without running Python code from the folder
twin    the same model with other values of some weights; it shares all the others
lora    an adapter in PEFT's format, put on a model: merged, or beside its weights
widened a rounded model at full precision
rows    several adapters over one model, one for each row of a batch
"""
