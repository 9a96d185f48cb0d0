"""A node that a test of evictions names, whatever process stands for it."""

from pathlib import Path

from esrally_ebs.model import Node


def node_of(pid: int, data_dir: Path = Path("/")) -> Node:
    return Node(
        arm="gp3",
        container="es-gp3",
        host="127.0.0.1",
        port=9203,
        pid=pid,
        data_dir=data_dir,
        memory_cgroup=None,
    )
