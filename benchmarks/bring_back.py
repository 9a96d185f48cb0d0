"""How long it takes to give a node the same bytes again, by what was chosen and by another start of the node.

    sudo .venv/bin/python benchmarks/bring_back.py [--size 1GiB] [--repeat 3]

Must reach: at most 2 s per GiB.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import elasticsearch

from esrally_ebs import node as nodes
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.node import kept
from esrally_ebs.node.dataset import content_hash
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.units import GIB, format_bytes, parse_bytes

LIMIT_S_PER_GIB = 2.0
SESSION = "benchmark-bring-back"
INDEX = "random"
_LINE_BYTES = 64 * 1024


def add(node: Node, size: int) -> None:
    """Index about so many bytes that do not compress, and that only need to be stored."""
    client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}", request_timeout=60)
    for _ in range(max(1, size // (64 * _LINE_BYTES))):
        lines = [{"bytes": os.urandom(_LINE_BYTES // 2).hex()} for _ in range(128)]
        client.bulk(index=INDEX, operations=[part for line in lines for part in ({"index": {}}, line)])
    client.indices.flush(index=INDEX)


def main() -> int:
    """Returns 1 when it took longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default=GIB)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    settings, image = load_settings(["defaults"], {}), nodes.choose_image(os.environ)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        spec = VolumeSpec(name="brought", type="directory", size_bytes=0)
        volume = Volume(spec=spec, kind=Kind.DIRECTORY, mount=Path(folder))
        with nodes.running(volume, settings, session=SESSION, image=image) as node:
            client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}", request_timeout=60)
            mappings = {"properties": {"bytes": {"type": "binary"}}}
            client.indices.create(index=INDEX, mappings=mappings, settings={"index.number_of_replicas": 0})
            add(node, arguments.size)
        hash_ = content_hash(volume.mount / "elasticsearch")
        kept.keep(volume)
        began_s = time.monotonic()
        with nodes.running(volume, settings, session=SESSION, image=image) as node:
            print(f"start of the node: {time.monotonic() - began_s:.2f} s")
            slowest = 0.0
            for _ in range(arguments.repeat):
                add(node, arguments.size // 4)
                brought = kept.bring_back(node, volume)
                same = content_hash(volume.mount / "elasticsearch") == hash_
                print(f"{brought.seconds:.2f} s, {format_bytes(brought.bytes)}, the same bytes: {same}")
                slowest = max(slowest, brought.seconds / brought.bytes * GIB if same else float("inf"))
            began_s = time.monotonic()
        print(f"stop of the node: {time.monotonic() - began_s:.2f} s")
    print(f"slowest: {slowest:.2f} s per GiB, must {LIMIT_S_PER_GIB:.0f} s")
    return int(slowest > LIMIT_S_PER_GIB)


if __name__ == "__main__":
    sys.exit(main())
