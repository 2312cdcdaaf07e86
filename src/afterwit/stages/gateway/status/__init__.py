"""Served models, health and metrics."""

from afterwit.stages.gateway.status.pages import Pages

__all__ = ["Pages"]
