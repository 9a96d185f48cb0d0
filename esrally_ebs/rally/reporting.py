"""Where Rally keeps its metrics: ``[reporting]`` of ``rally.ini`` as the address of an Elasticsearch."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from esrally import config

from esrally_ebs.errors import EbsError, PlanError
from esrally_ebs.metrics_store import StoreAddress, send
from esrally_ebs.store import SessionFolder, load_session

_OFF = ("", "0", "false", "no", "off", "none")


def store_address(cfg: Any) -> StoreAddress | None:
    """The store of a race's configuration; None when Rally keeps its metrics in memory.

    Raises PlanError, naming the key, for a store whose address is incomplete.
    """
    if _text(cfg, "datastore.type", "in-memory") != "elasticsearch":
        return None
    host, port = _text(cfg, "datastore.host"), _number(cfg, "datastore.port")
    if not host or port is None:
        raise PlanError("rally.ini: [reporting] names an Elasticsearch store; give datastore.host and .port")
    # as in Rally, the environment goes before the file
    key = os.environ.get("RALLY_REPORTING_DATASTORE_API_KEY") or _text(cfg, "datastore.api_key")
    user = os.environ.get("RALLY_REPORTING_DATASTORE_USER") or _text(cfg, "datastore.user")
    password = os.environ.get("RALLY_REPORTING_DATASTORE_PASSWORD") or _text(cfg, "datastore.password")
    return StoreAddress(
        host=host,
        port=port,
        secure=_text(cfg, "datastore.secure").lower() not in _OFF,
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
    """The store of ``rally.ini``, or of ``rally-<name>.ini``.

    Raises PlanError when there is no such file or it names no Elasticsearch.
    """
    cfg = config.Config(config_name=name)
    if not cfg.config_present():
        raise PlanError(f"{cfg.config_file.location}: not there; run 'esrally' once, or name another one")
    cfg.load_config()
    address = store_address(cfg)
    if address is None:
        raise PlanError(
            f"{cfg.config_file.location}: Rally keeps its metrics in memory; in [reporting] set "
            "datastore.type = elasticsearch, datastore.host and datastore.port"
        )
    return address


def keep(cfg: Any, folder: Path, *, warn: Callable[[str], None]) -> None:
    """Send a session that has ended to the race's store, if it has one; what goes wrong is one warning."""
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
