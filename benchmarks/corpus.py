"""How fast the synthetic corpus is written: documents and megabytes per second with one and with two workers.

    .venv/bin/python benchmarks/corpus.py [DOCUMENTS [DIRECTORY]]

Both are of one run, so their ratio holds on a busy machine too. The target: 300,000 documents/s on two cores.
"""

import sys
import tempfile
import time
from pathlib import Path

from esrally_ebs.workload.corpus import generate

TARGET_PER_S = 300_000


def main(documents: int, directory: Path) -> None:
    """Generate twice and print a line each."""
    generate(directory / "first.json", documents=1)  # builds the tables, once per process
    rates = {}
    for workers in (1, 2):
        started = time.perf_counter()
        corpus = generate(directory / f"{workers}.json", documents=documents, workers=workers)
        seconds = time.perf_counter() - started
        rates[workers] = documents / seconds
        print(
            f"{workers} worker(s): {rates[workers]:9,.0f} documents/s"
            f"  {corpus.bytes / seconds / 1e6:6.1f} MB/s  ({documents:,} in {seconds:.2f} s)"
        )
        corpus.path.unlink()
    print(
        f"2 workers / 1 worker: {rates[2] / rates[1]:.2f}; 2 workers / target: {rates[2] / TARGET_PER_S:.2f}"
    )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as scratch:
        main(count, Path(scratch))
