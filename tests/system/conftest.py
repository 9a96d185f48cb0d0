"""What holds for all system tests."""

import signal

import setproctitle
from emulated_arms import arms
from moto_server import aws, moto

__all__ = ["arms", "aws", "moto"]  # fixtures: a folder for emulated volumes; one server for all tests of AWS

# To Rally, a Python process with "esrally" in its command line is another Rally; it refuses to race beside
# one. Such a process is pytest, too, when the checkout's path has that word.
setproctitle.setproctitle("pytest")

# Who was started in the background ignores Ctrl-C, and so would the races that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
