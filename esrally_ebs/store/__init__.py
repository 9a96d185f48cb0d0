"""The session folder: written as a session happens, by several processes; read whole or after a crash.

Writers take ``SessionFolder``; readers take ``load_session``. Analysis imports ``store.session`` alone, which
reaches neither the machine nor a file.
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
