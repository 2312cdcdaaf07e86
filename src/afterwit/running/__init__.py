"""The processes of `serve`, `up` and `train`."""
