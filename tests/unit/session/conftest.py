"""For the tests of data hosts."""

from stand_in_ssh import stand_in

__all__ = ["stand_in"]  # a fixture
