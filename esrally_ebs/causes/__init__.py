"""Why arms differ: what requests did to their volume, what fio lets expect of that, what befell a round.

Pure: takes a loaded session (its ``io`` events, samples, baseline rows), gives frozen values; nothing is
concluded where something is missing. ``docs/causes.md`` says how.
"""

from esrally_ebs.causes.expected import Expected, FioReads, expected, fio_reads
from esrally_ebs.causes.marks import MATTERS, Block, Cause, marked_blocks
from esrally_ebs.causes.profile import Profile, Profiles, pooled, profiles, singles
from esrally_ebs.causes.sentence import Measured, why
from esrally_ebs.causes.windows import Window, windows

__all__ = [
    "MATTERS",
    "Block",
    "Cause",
    "Expected",
    "FioReads",
    "Measured",
    "Profile",
    "Profiles",
    "Window",
    "expected",
    "fio_reads",
    "marked_blocks",
    "pooled",
    "profiles",
    "singles",
    "why",
    "windows",
]
