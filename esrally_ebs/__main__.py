"""The ``esrally-ebs`` command, also run as ``python -m esrally_ebs``."""

import signal
import sys


def main() -> int:
    """Run the command; Ctrl-C while its first modules load (half a second) ends it silently."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from esrally_ebs.cli import main as run
    from esrally_ebs.machine.processes import interrupt_again

    sys.unraisablehook = interrupt_again
    signal.signal(signal.SIGINT, usual)
    return run()


if __name__ == "__main__":
    sys.exit(main())
