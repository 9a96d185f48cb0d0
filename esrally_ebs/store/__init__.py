"""The session folder: written during a session by several processes; read whole, or after a crash.

Writers use ``SessionFolder``, readers ``load_session``. Analysis imports only ``store.session``, which
reaches neither the machine nor files.
"""

from esrally_ebs.store.folder import SessionFolder
from esrally_ebs.store.parts import PartWriter
from esrally_ebs.store.reading import find_session, list_sessions, load_session
from esrally_ebs.store.session import Session, SessionSummary

__all__ = [
    "PartWriter",
    "Session",
    "SessionFolder",
    "SessionSummary",
    "find_session",
    "list_sessions",
    "load_session",
]
