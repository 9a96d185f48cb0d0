"""The fault table, a measurement that is invalid: the race says why it fails, and nothing is left."""

import time
from pathlib import Path

import elasticsearch
import pytest
from faulted import Afterwards, assert_one_line
from race_under_test import Race, docker, plan, race

from esrally_ebs.store.context import FILE, Arm, load_context

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("able_machine")]


def serving(race: Race) -> bool:
    return (race.run / "context.json").exists()


def test_an_index_that_is_read_all_the_time_makes_the_race_fail(home: Path, afterwards: Afterwards) -> None:
    """As by a forgotten process: beside the node, so that nothing on the host holds the mount."""
    reading = "while :; do cat data/indices/*/*/index/* >/dev/null 2>&1; done"
    with race(home, plan("[cache]\nmax_resident = 0.0\n", iterations=100_000)) as running:
        running.reach(serving)
        struck = time.monotonic()
        docker("exec", "-d", "-w", "/usr/share/elasticsearch", running.containers()[0], "bash", "-c", reading)
        code = running.exit_code()
        afterwards.row("the index stays in memory", running, code, running.gone(struck))
        assert code == 4
        assert_one_line(running, r"end whatever else reads the index of ebs-.*-arm0")
    afterwards.listed(running, "failed", "end whatever else reads the index")


def test_arms_that_answer_differently_make_the_race_fail(home: Path, afterwards: Afterwards) -> None:
    """As when somebody writes to one arm's index during the race."""
    with race(home, plan(arms=("gp3", "gp3"))) as running:
        running.reach(serving)
        struck = time.monotonic()
        delete_half(load_context(running.run / FILE).arm("arm1"))
        code = running.exit_code()
        afterwards.row("arms that answer differently", running, code, running.gone(struck))
        assert code == 4
        assert_one_line(running, "the arms cannot be compared: hits: ")
        assert (running.folder / "report.md").exists()
    afterwards.listed(running, "failed", "hits: ")


def delete_half(arm: Arm) -> None:
    (node,) = arm.nodes
    client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}")
    hits = client.search(index="weather-data-2016", size=1000, source=False)["hits"]["hits"]
    client.bulk(
        index="weather-data-2016", refresh=True, operations=[{"delete": {"_id": hit["_id"]}} for hit in hits]
    )
    client.close()
