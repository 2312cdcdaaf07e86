"""How the demo's base model is made from nothing: tokenizer, corpus, training."""
