"""What this machine lacks for a session, and how to mend each.

Takes nothing, gives one Check per requirement; ``esrally-ebs doctor`` prints them, a session may ask first.
``machine`` looks (touches the system), ``checks`` judges (pure). Java is not looked for: nodes bring theirs.
Processors that are shared or busy are warned of, as before a session.
"""

from collections.abc import Callable

from esrally_ebs.checks.machine_facts import look
from esrally_ebs.checks.processors import check_processors
from esrally_ebs.checks.requirements import checks_of
from esrally_ebs.model import Check

__all__ = ["check_machine"]


def check_machine(signatures: Callable[[], list[Check]] | None = None) -> list[Check]:
    """All checks of this machine in the order in which they should be mended.

    ``signatures`` gives the checks of the installed Rally: handed in, as only ``rally`` may import Rally.
    """
    return [*checks_of(look()), check_processors(), *(signatures() if signatures else [])]
