"""Documents into the store, in bulk and in bounded time; whatever goes wrong is one line to read."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import elasticsearch
from elastic_transport import TransportError
from elasticsearch import Elasticsearch, helpers

from esrally_ebs.errors import SetupError
from esrally_ebs.metrics_store.documents import Document, documents
from esrally_ebs.store.session import Session

PATTERN = "rally-ebs-*"
_TEMPLATE = "rally-ebs"
_AT_ONCE = 2000  # documents in a request: about a megabyte
_REQUEST_S = 20.0  # that one request may take
_LONGEST_S = 120.0  # that all of them may take


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Where Rally's metrics store is and who we are there: ``[reporting]`` of ``rally.ini``."""

    host: str
    port: int
    secure: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    verify: bool = True
    ca_path: str | None = None
    environment: str = "local"  # Rally's env.name
    shards: int | None = None
    replicas: int | None = None

    @property
    def url(self) -> str:
        """The address as one would type it, without who we are."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """How much went where."""

    documents: int
    index: str
    url: str


def send(session: Session, store: StoreAddress, *, clock: Callable[[], float] = time.monotonic) -> Sent:
    """Send a recorded session; documents that are there already are replaced.

    Raises SetupError, in one line with the next step, when the store cannot be reached, refuses, or takes
    longer than two minutes; what was sent before stays there.
    """
    index = f"rally-ebs-{datetime.fromtimestamp(session.started_at, UTC):%Y-%m}"
    sent = 0
    ends = clock() + _LONGEST_S
    again = f"the session is kept; 'esrally-ebs push {session.id}' sends it again"
    try:
        with _client(store) as client:
            client.indices.put_index_template(name=_TEMPLATE, **template(store))
            for chunk in _chunks(documents(session, store.environment)):
                if clock() > ends:
                    raise SetupError(
                        f"metrics store {store.url}: {sent} documents took over {_LONGEST_S:.0f} s; {again}"
                    )
                helpers.bulk(client, _actions(index, chunk), chunk_size=_AT_ONCE)
                sent += len(chunk)
    except helpers.BulkIndexError as error:
        raise SetupError(f"metrics store {store.url}: {_first_refusal(error)}; {again}") from error
    except (elasticsearch.ApiError, TransportError, ValueError) as error:
        raise SetupError(f"metrics store {store.url}: {_one_line(_why(error))}; {again}") from error
    return Sent(documents=sent, index=index, url=store.url)


def template(store: StoreAddress) -> dict[str, Any]:
    """The index template, with the numbers of shards and replicas that ``rally.ini`` wants."""
    held: dict[str, Any] = json.loads(Path(__file__).with_name("template.json").read_text())
    wanted = {"number_of_shards": store.shards, "number_of_replicas": store.replicas}
    held["template"]["settings"]["index"] = {key: n for key, n in wanted.items() if n is not None}
    return held


def _client(store: StoreAddress) -> Elasticsearch:
    options: dict[str, Any] = {"request_timeout": _REQUEST_S, "max_retries": 0, "retry_on_timeout": False}
    if store.user:
        options["basic_auth"] = (store.user, store.password)
    elif store.api_key:
        options["api_key"] = store.api_key
    if store.secure:
        options |= {"verify_certs": store.verify, "ssl_show_warn": False}
        if store.ca_path:
            options["ca_certs"] = store.ca_path
    return Elasticsearch(store.url, **options)


def _chunks(all_of_them: Iterable[Document]) -> Iterator[list[Document]]:
    left = iter(all_of_them)
    while chunk := list(islice(left, _AT_ONCE)):
        yield chunk


def _actions(index: str, chunk: Iterable[Document]) -> Iterator[dict[str, Any]]:
    for document in chunk:
        yield {"_index": index, "_id": document.id, "_source": document.fields}


def _first_refusal(error: helpers.BulkIndexError) -> str:
    number = len(error.errors)
    first = next(iter(error.errors[0].values())) if error.errors else {}
    reason = first.get("error", {})
    text = reason.get("reason", reason) if isinstance(reason, dict) else reason
    return f"{number} documents refused, the first: {_one_line(text)}"


def _why(error: Exception) -> str:
    """The client's words, and what lies behind them where they say little."""
    behind = [str(one) for one in getattr(error, "errors", ()) if str(one) not in str(error)]
    return f"{error}: {behind[0]}" if behind else str(error)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
