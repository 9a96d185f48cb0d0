"""Fixtures of the tests of data hosts."""

from stand_in_ssh import own_folders, stand_in

__all__ = ["own_folders", "stand_in"]
