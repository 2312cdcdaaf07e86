"""The folders that the tests of one server use."""

from tests.engines.server.conftest import base, versions, wholes

__all__ = ["base", "versions", "wholes"]
