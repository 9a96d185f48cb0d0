"""What holds for all system tests."""

import setproctitle

# To Rally, a Python process with "esrally" in its command line is another Rally; it refuses to race beside
# one. Such a process is pytest, too, when the checkout's path has that word.
setproctitle.setproctitle("pytest")
