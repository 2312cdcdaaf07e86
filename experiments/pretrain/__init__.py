"""How the demo's base models are made from nothing: tokenizer, corpora, training."""
