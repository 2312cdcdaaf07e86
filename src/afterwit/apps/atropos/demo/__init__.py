"""`afterwit atropos demo`: run-api, trainer and environment as processes of this machine, and one picture."""
