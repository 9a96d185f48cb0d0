"""A node's garbage collection log, followed while it grows: new pauses out each time that it is asked."""

from pathlib import Path

from esrally_ebs.formats.gc_log import Pause, parse_pauses
from esrally_ebs.model import Node

# Where compose/node.yml lets the JVM write it, inside the node's container.
LOG = Path("usr/share/elasticsearch/logs/ebs-gc.log")


class GcLog:
    """The pauses of one JVM; a log that is not there (a node of another make) has none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    @classmethod
    def of(cls, node: Node) -> "GcLog":
        """The log of a node in its container, by the root directory of its process."""
        return cls(Path(f"/proc/{node.pid}/root") / LOG)

    def new(self) -> list[Pause]:
        """Pauses since the last call; the first call gives all since the node's start. Raises nothing."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._read:  # the JVM began a new file
                    self._read, self._rest = 0, b""
                file.seek(self._read)
                data = file.read()
        except OSError:
            return []
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return parse_pauses("\n".join(line.decode(errors="replace") for line in lines))
