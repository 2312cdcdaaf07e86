"""Afterwit: a gateway between an agent and its model, from which the model learns in hindsight."""

__version__ = "0.1.0"
