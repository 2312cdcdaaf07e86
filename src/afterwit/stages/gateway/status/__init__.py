"""What a gateway says of itself: its models, its health, its numbers."""

from afterwit.stages.gateway.status.pages import Pages

__all__ = ["Pages"]
