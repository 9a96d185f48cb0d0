"""For the tests that boot guests: one server for all that speak to AWS."""

from moto_server import aws, moto

__all__ = ["aws", "moto"]  # fixtures
