"""The views of the page: each says what it reads of the store, and which template shows it."""

from afterwit.stages.gateway.page.views.view import NotFound, View, Wanted

__all__ = ["NotFound", "View", "Wanted"]
