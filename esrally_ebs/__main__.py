"""The ``esrally-ebs`` command, also as ``python -m esrally_ebs``: loads it, and calls it."""

import signal
import sys
import threading


def main() -> int:
    """Run the command; Ctrl-C while its modules load, for a second or more, ends it without a word."""
    sys.unraisablehook = interrupt_again
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from esrally_ebs.cli import main as run

    signal.signal(signal.SIGINT, usual)
    return run()


def interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Where Python drops an exception, in a callback or destructor, see that a Ctrl-C is not lost with it."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    # later, from another thread: here it would be dropped again
    threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()


if __name__ == "__main__":
    sys.exit(main())
