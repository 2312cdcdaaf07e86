"""The page for people: what was recorded, judged and learned, and buttons that take learning back."""

from afterwit.stages.gateway.page.app import UserPage
from afterwit.stages.gateway.page.controls import Controls, HomeControls

__all__ = ["Controls", "HomeControls", "UserPage"]
