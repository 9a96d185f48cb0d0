"""What a session ran on: host, kernel, CPU, memory, engine, Elasticsearch, Rally. Facts for the record."""

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import esrally_ebs
from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.kernel_trees import text
from esrally_ebs.machine.processes import run
from esrally_ebs.model import Node
from esrally_ebs.node import api

_TIMEOUT_S = 10.0


def describe(nodes: Sequence[Node], engine: Mapping[str, str | None]) -> dict[str, Any]:
    """The environment for ``session.json``; facts that cannot be found out are None.

    ``engine`` is the result of ``engine_facts`` for the nodes' images.
    """
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "os": _os_name(),
        "cpu": cpu_model(text(Path("/proc/cpuinfo"))),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "esrally_ebs": esrally_ebs.__version__,
        "rally": version("esrally"),
        "fio": _tool("fio", "--version"),
        "engine": engine.get(""),
        "nodes": {node.arm: _node(node, engine.get(node.image)) for node in nodes},
    }


def engine_facts(images: Iterable[str]) -> dict[str, str | None]:
    """The engine's version, under key ``""``, and each running image's id, as tags may move."""
    facts = {
        image: _tool("docker", "image", "inspect", "--format", "{{.Id}}", "--", image) for image in images
    }
    return facts | ({"": _tool("docker", "version", "--format", "{{.Server.Version}}")} if facts else {})


def cpu_model(cpuinfo: str) -> str | None:
    match = re.search(r"^(?:model name|Model)\s*:(.*)", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else None


def _node(node: Node, image_id: str | None) -> dict[str, Any]:
    version_ = api.get(node.port, "/")["version"]
    (jvm_node,) = api.get(node.port, "/_nodes/_local/jvm,os,process,settings")["nodes"].values()
    return {
        "image": node.image,
        "image_id": image_id,
        "version": node.version,
        "build": version_["build_hash"],
        "lucene": version_["lucene_version"],
        "jvm": f"{jvm_node['jvm']['vm_name']} {jvm_node['jvm']['version']}",
        "heap_bytes": jvm_node["jvm"]["mem"]["heap_max_in_bytes"],
        "processors": jvm_node.get("os", {}).get("allocated_processors"),  # that its container allows
        # only fields that could change results: no names, paths or ports
        "settings": {"store_type": jvm_node["settings"].get("index", {}).get("store", {}).get("type")},
    }


def _tool(*argv: str) -> str | None:
    try:
        return run(argv, timeout_s=_TIMEOUT_S).strip()
    except (CommandError, SetupError):
        return None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None
