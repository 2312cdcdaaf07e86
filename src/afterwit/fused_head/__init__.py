"""Loss and gradient from hidden states, in the memory of a chunk of rows."""
