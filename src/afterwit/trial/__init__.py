"""`afterwit trial`: whether a model learns on this machine."""
