"""Finds documents by their number in the shard, each as likely as any other, whatever is in memory."""

import random
from pathlib import Path
from typing import Any

from esrally_ebs.rally import register as _register


def by_number(track: Any, params: Any, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - Rally is untyped
    """Parameters of Rally's ``search``: its hit is one document, whose 128 KB are read to find its id."""
    (documents,) = track.corpora[0].documents
    number = random.randrange(documents.number_of_documents)  # the same on all arms, which the pack sees to
    query = {"term": {"_seq_no": number}}
    return {"index": "lookups", "cache": False, "body": {"_source": False, "query": query}}


def register(registry: Any) -> None:  # noqa: ANN401 - Rally is untyped
    """Called by Rally."""
    registry.register_param_source("by-number", by_number)
    _register(registry, plan=str(Path(__file__).with_name("plan.toml")))
