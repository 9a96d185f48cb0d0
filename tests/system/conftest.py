"""What holds for all system tests."""

import setproctitle

# To Rally, a Python process with "esrally" in its command line is another Rally, and it refuses to race beside
# one; pytest is such a process when the checkout's path has that word.
setproctitle.setproctitle("pytest")
