"""How long a mapped index of 1 GiB takes to evict and what is left of it; ``drop_caches`` as the contrast.

    sudo .venv/bin/python benchmarks/eviction.py [--directory /mnt/gp3] [--size 1GiB] [--repeat 5]

Must reach: at most 0.5 s, and 0.0 to 1.0 % resident.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esrally_ebs.node.eviction import evict
from esrally_ebs.node.page_cache import residency
from esrally_ebs.units import GIB, format_bytes, parse_bytes

FILES = 24  # an index of a few segments
LIMIT_S = 0.5
LIMIT_RESIDENT = 0.01

# Maps every file as Lucene does and touches all pages: at start, then once per line on stdin.
READER = """
import mmap, pathlib, sys
maps = []
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    with path.open("rb") as file:
        maps.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
while True:
    for mapped in maps:
        for offset in range(0, len(mapped), mmap.PAGESIZE):
            mapped[offset]
    print("warm", flush=True)
    if not sys.stdin.readline():
        break
"""


@contextmanager
def reader(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that maps all files of the directory and has read them."""
    argv = [sys.executable, "-c", READER, str(directory)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            _wait_warm(process)
            yield process
        finally:
            process.kill()


def _wait_warm(process: subprocess.Popen[str]) -> None:
    if process.stdout is None or process.stdout.readline() != "warm\n":
        raise RuntimeError("the reader died; see its error above")


def _read_again(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.write("\n")
        process.stdin.flush()
    _wait_warm(process)


def _fill(directory: Path, size: int) -> None:
    block = os.urandom(1 << 20)
    each = size // FILES
    for number in range(FILES):
        with (directory / f"_{number}.cfs").open("wb") as file:
            for _ in range(each >> 20):
                file.write(block)
            file.write(block[: each % (1 << 20)])
            os.fsync(file.fileno())


def main() -> int:
    """Print one line per run; exit code 1 when the limits are missed for an index of 1 GiB or less."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="not on tmpfs")
    parser.add_argument("--size", type=parse_bytes, default=GIB)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        _fill(directory, arguments.size)
        with reader(directory) as process:
            for run in range(1, arguments.repeat + 1):
                _read_again(process)
                done = evict([process.pid], directory)
                again = residency(directory).fraction
                print(
                    f"evict {run}: {format_bytes(done.bytes)}, resident {done.resident_before:.1%} -> "
                    f"{done.resident_after:.2%} (again {again:.2%}) in {done.seconds:.3f} s"
                )
                missed += done.resident_after > LIMIT_RESIDENT or done.seconds > LIMIT_S
            _read_again(process)
            before = residency(directory).fraction
            begin = time.monotonic()
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
            seconds = time.monotonic() - begin
            after = residency(directory).fraction
            print(f"drop_caches=3: resident {before:.1%} -> {after:.1%} in {seconds:.3f} s")
    print(f"limits: {LIMIT_S} s and {LIMIT_RESIDENT:.1%}; missed by {missed} of {arguments.repeat} runs")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
