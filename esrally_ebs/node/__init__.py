"""An Elasticsearch on a volume, in Docker: image, start, health, identity of its index, stop, removal."""

from esrally_ebs.node.engine import choose_image, folders_elsewhere, leftovers, remove
from esrally_ebs.node.identity import Segment, hashes, same_segments, segments
from esrally_ebs.node.life import death, lasting_port, lose, prepare_data_dir, restart, running, start, stop
from esrally_ebs.node.settings import OVERHEAD_BYTES, STORE_TYPES, NodeSettings, of_all_arms, page_cache_bytes

__all__ = [
    "OVERHEAD_BYTES",
    "STORE_TYPES",
    "NodeSettings",
    "Segment",
    "choose_image",
    "death",
    "folders_elsewhere",
    "hashes",
    "lasting_port",
    "leftovers",
    "lose",
    "of_all_arms",
    "page_cache_bytes",
    "prepare_data_dir",
    "remove",
    "restart",
    "running",
    "same_segments",
    "segments",
    "start",
    "stop",
]
