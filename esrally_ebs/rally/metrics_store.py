"""Rally's metrics store: reads its address from ``[reporting]`` of ``rally.ini``, and sends sessions to it.

In bulk requests and limited time; any failure is reported in one line.
"""

import json
import os
import re
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

from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.rally.settings import configuration
from esrally_ebs.report.documents import Document, documents
from esrally_ebs.store import Session, SessionFolder, load_session

_HOST = re.compile(r"[^\s/:@?#]+|[0-9A-Fa-f:.]+(%\w+)?")  # a name, or an address
_FALSE_WORDS = ("", "0", "false", "no", "off", "none")
_TEMPLATE = "rally-ebs"
_AT_ONCE = 2000  # documents per request: about a megabyte
_REQUEST_S = 20.0  # limit for one request
_LONGEST_S = 120.0  # limit for all requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Address and credentials of Rally's metrics store: ``[reporting]`` of ``rally.ini``."""

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
        host = f"[{self.host}]" if ":" in self.host else self.host  # an address of IPv6
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    documents: int
    index: str
    url: str


def send(session: Session, store: StoreAddress, *, clock: Callable[[], float] = time.monotonic) -> Sent:
    """Send a recorded session; replaces documents that are there already.

    Raises SetupError, one line with the next step, if the store cannot be reached, refuses, or takes longer
    than two minutes; documents sent before that stay.
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
                actions = ({"_index": index, "_id": one.id, "_source": one.fields} for one in chunk)
                helpers.bulk(client, actions, chunk_size=_AT_ONCE)
                sent += len(chunk)
    except helpers.BulkIndexError as error:
        raise SetupError(f"metrics store {store.url}: {_first_refusal(error)}; {again}") from error
    except (elasticsearch.ApiError, TransportError, ValueError) as error:
        raise SetupError(f"metrics store {store.url}: {_one_line(_why(error))}; {again}") from error
    return Sent(documents=sent, index=index, url=store.url)


def template(store: StoreAddress) -> dict[str, Any]:
    """The index template, with ``rally.ini``'s numbers of shards and replicas."""
    body: dict[str, Any] = json.loads(Path(__file__).with_name("template.json").read_text())
    wanted = {"number_of_shards": store.shards, "number_of_replicas": store.replicas}
    body["template"]["settings"]["index"] = {key: n for key, n in wanted.items() if n is not None}
    return body


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


def _first_refusal(error: helpers.BulkIndexError) -> str:
    number = len(error.errors)
    first = next(iter(error.errors[0].values())) if error.errors else {}
    reason = first.get("error", {})
    text = reason.get("reason", reason) if isinstance(reason, dict) else reason
    return f"{number} documents refused, the first: {_one_line(text)}"


def _why(error: Exception) -> str:
    """The client's message, with its cause where it says little."""
    behind = [str(one) for one in getattr(error, "errors", ()) if str(one) not in str(error)]
    return f"{error}: {behind[0]}" if behind else str(error)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]


def store_address(cfg: Any) -> StoreAddress | None:
    """The metrics store in a race's configuration; None if Rally keeps metrics in memory.

    Raises PlanError, with the key, for an incomplete address.
    """
    if _text(cfg, "datastore.type", "in-memory") != "elasticsearch":
        return None
    host, port = _text(cfg, "datastore.host"), _number(cfg, "datastore.port")
    if not host or port is None:
        raise PlanError("rally.ini: [reporting] names an Elasticsearch store; give datastore.host and .port")
    host = host.removeprefix("[").removesuffix("]")
    if not (_HOST.fullmatch(host) and 0 < port < 2**16):
        raise PlanError(
            f"rally.ini: [reporting] datastore.host = {host}, .port = {port}: no host and port; write them "
            "without http:// (that is datastore.secure), as es.example.com and 9200"
        )
    # as in Rally, the environment goes before the file
    key = os.environ.get("RALLY_REPORTING_DATASTORE_API_KEY") or _text(cfg, "datastore.api_key")
    user = os.environ.get("RALLY_REPORTING_DATASTORE_USER") or _text(cfg, "datastore.user")
    password = os.environ.get("RALLY_REPORTING_DATASTORE_PASSWORD") or _text(cfg, "datastore.password")
    return StoreAddress(
        host=host,
        port=port,
        secure=_text(cfg, "datastore.secure").lower() not in _FALSE_WORDS,
        user=user,
        password=password,
        api_key=key,
        verify=_text(cfg, "datastore.ssl.verification_mode", "full") != "none",
        ca_path=_text(cfg, "datastore.ssl.certificate_authorities") or None,
        environment=str(cfg.opts("system", "env.name", mandatory=False, default_value="local")),
        shards=_number(cfg, "datastore.number_of_shards"),
        replicas=_number(cfg, "datastore.number_of_replicas"),
    )


def configured_store(name: str | None) -> StoreAddress:
    """The store of ``rally.ini`` or ``rally-<name>.ini``.

    Raises PlanError when there is no such file, Rally cannot read it, or it names no Elasticsearch.
    """
    cfg = configuration(name)
    if not cfg.config_present():
        raise PlanError(f"{cfg.config_file.location}: not there; run 'esrally' once, or name another one")
    address = store_address(cfg)
    if address is None:
        raise PlanError(
            f"{cfg.config_file.location}: Rally keeps its metrics in memory; in [reporting] set "
            "datastore.type = elasticsearch, datastore.host and datastore.port"
        )
    return address


def keep(cfg: Any, folder: Path, *, warn: Callable[[str], None]) -> None:
    """Send an ended session to the race's store, if there is one; a failure gives one warning."""
    try:
        address = store_address(cfg)
        if address is not None:
            send(load_session(folder), address)
    except EbsError as error:
        SessionFolder(folder).add_warning(str(error))
        warn(str(error))


def _text(cfg: Any, key: str, default: str = "") -> str:
    return str(cfg.opts("reporting", key, mandatory=False, default_value=default) or default).strip()


def _number(cfg: Any, key: str) -> int | None:
    text = _text(cfg, key)
    if text and not text.isdecimal():
        raise PlanError(f"rally.ini: [reporting] {key} = {text}: not a number; write for example 9200")
    return int(text) if text else None
