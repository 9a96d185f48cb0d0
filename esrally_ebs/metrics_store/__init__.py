"""Rally's own metrics store: a recorded session as documents beside those that Rally keeps of the race.

documents (pure) -> sending -> dashboard of what is there. The session's folder stays the record: what the
store lacks can be sent again at any time, and what it has already is replaced, not doubled.
"""

from esrally_ebs.metrics_store.dashboard import render_dashboard
from esrally_ebs.metrics_store.documents import RECORDS, Document, documents
from esrally_ebs.metrics_store.sending import PATTERN, Sent, StoreAddress, send

__all__ = [
    "PATTERN",
    "RECORDS",
    "Document",
    "Sent",
    "StoreAddress",
    "documents",
    "render_dashboard",
    "send",
]
