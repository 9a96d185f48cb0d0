"""Mutated query logs: each entry becomes a request, a counted reason, or the import one clear error.

``FUZZ_LINES=10000 pytest tests/fuzz`` mutates as many entries of each format; the suite some hundred. A
failure names the seed of its batch, which gives the same mutations again.
"""

import json
import os
import random
from pathlib import Path

import pytest
from mutations import mutated
from query_logs import GOLDEN_LOGS, accounted, requests

from esrally_ebs.errors import EbsError
from esrally_ebs.workload.queries import FORMATS, Options, import_logs

ENTRIES = int(os.environ.get("FUZZ_LINES", "300"))
BATCH = 25
MULTILINE = {"goreplay", "msearch", "query-insights", "es-audit"}  # an entry is not a line, or not one search
SEPARATOR = {"goreplay": "🐵🙈🙉\n".encode()}


def entries(name: str) -> list[bytes]:
    """The entries of a format's golden log, with their ends."""
    content = (GOLDEN_LOGS / f"{name}.log").read_bytes()
    separator = SEPARATOR.get(name, b"\n")
    if name == "query-insights":  # one document; its records as they lie in an exporter's index
        return [content, *(json.dumps(row).encode() + b"\n" for row in json.loads(content)["top_queries"])]
    return [part + separator for part in content.split(separator) if part]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("detect", [False, True], ids=["named", "detected"])
def test_a_mutated_log_is_imported_or_refused_in_one_line(name: str, detect: bool, tmp_path: Path) -> None:
    originals = entries(name)
    for seed in range(ENTRIES // BATCH // 2):
        draw = random.Random(f"{name}-{detect}-{seed}")
        log, output = tmp_path / "log", tmp_path / f"out-{seed}"
        log.write_bytes(b"".join(mutated(draw, draw.choice(originals), originals) for _ in range(BATCH)))
        options = Options(
            format="auto" if detect else name,
            index=draw.choice((None, None, "logs", "lo*")),
            hash_literals=draw.random() < 0.3,
            modules=draw.random() < 0.8,
        )
        refusal = ""
        try:
            summary = import_logs([log], output, options)
        except EbsError as error:
            refusal = str(error)
        if refusal:
            assert "\n" not in refusal, seed
            assert not output.exists(), seed
            continue
        assert len(requests(output)) == summary.requests, seed
        if not detect and name not in MULTILINE:
            blank = sum(not line.strip() for line in log.read_bytes().split(b"\n")[: summary.lines])
            assert summary.lines - blank <= accounted(output) <= summary.lines, seed
