"""A session as documents for Rally's metrics store; what is sent, where to, what is said when it fails."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import golden_session
import pyarrow as pa
import pytest
import session_in_memory
from loopback_server import free_port, serving
from small_plan import small_plan

from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import BaselineRow, Check, Event, Kind, State, TelemetryPoint, Volume, VolumeSpec
from esrally_ebs.rally.metrics_store import StoreAddress, configured_store, keep, send, template
from esrally_ebs.report.documents import documents, panels, render_dashboard
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.session import Session

START = 1_700_000_000.0  # 2023-11-14


def make(home: Path, name: str = "s-1") -> Path:
    """A session of one drop, one row of fio and two metrics at one second, without a request."""
    plan = small_plan(race={"challenge": "c"})
    folder = SessionFolder.create(home, name, kind="race", plan=plan, started_at=START)
    spec = VolumeSpec(name="a", type="gp3", size_bytes=1)
    folder.update(arms=[Volume(spec=spec, kind=Kind.EMULATED, mount=Path("/mnt"))])
    row = {"bs_bytes": 4096, "numjobs": 1, "iodepth": 1, "iops": 3000.0, "bandwidth_bytes_per_s": 1.0}
    times = dict.fromkeys(("mean_s", "p50_s", "p90_s", "p99_s", "p999_s"), 0.001)
    folder.rows_baseline([BaselineRow(arm="a", round=0, job="j", op="read", **row, **times)])
    with folder.part_writer("telemetry") as writer:
        writer.add(
            TelemetryPoint(arm="a", device="loop0", at_s=START + 1, metric=m, value=v, unit="")
            for m, v in (("device.reads_per_s", 7.0), ("device.queue_depth", float("nan")))
        )
    fields = {"task": "q", "round": 1, "before": 0.9, "after": 0.001, "attempts": 1, "seconds": 0.1}
    folder.event(Event(at_s=START + 2, kind="drop", arm="a", fields=fields))
    folder.finish(State.COMPLETE, ended_at=START + 60)
    return folder.path


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return load_session(make(tmp_path))


def test_what_the_session_holds_becomes_one_document_each(session: Session) -> None:
    all_documents = list(documents(session, "local"))
    counts = Counter(document.fields["record"] for document in all_documents)
    assert counts == {"session": 1, "baseline": 1, "telemetry": 1, "residency": 1}
    assert len({document.id for document in all_documents}) == 4


def test_what_is_not_comparable_has_no_verdict_in_the_store_either() -> None:
    hits = Check(name="hits", ok=False, value="", text="other documents")
    for checks, outcome in ((), ("slower", True)), ((hits,), ("not comparable", False)):
        (verdict,) = (
            document.fields
            for document in documents(session_in_memory.session(1.2, checks=checks), "local")
            if document.fields["record"] == "verdict"
        )
        assert (verdict["verdict"], verdict["decided"]) == outcome


def test_what_kept_to_a_schedule_has_verdicts_on_its_latency_in_the_store() -> None:
    plan = small_plan(race={}, cache={"mode": "warm"}, design={"nodes": "per-arm"})
    made = session_in_memory.session(plan=plan)
    rows = made.samples.to_pylist()
    for row in rows:
        row["latency_s"] = row["service_time_s"] + (0.1 if row["arm"] == "b" else 0.001)
    late = replace(made, samples=pa.Table.from_pylist(rows, schema=made.samples.schema))
    verdicts = {
        document.fields["task"]: document.fields["verdict"]
        for document in documents(late, "local")
        if document.fields["record"] == "verdict"
    }
    assert verdicts == {"t": "equivalent", "latency of t": "slower"}


def test_service_times_have_the_intervals_of_the_arm_by_itself() -> None:
    records = [d.fields for d in documents(session_in_memory.session(), "local")]
    times = next(fields for fields in records if fields["record"] == "service-time")
    assert times["p50_s_low"] <= times["p50_s"] <= times["p50_s_high"]
    assert times["p99_s_low"] is None


def test_the_verdict_on_all_tasks_together_is_one_of_the_verdicts(tmp_path: Path) -> None:
    records = [d.fields for d in documents(load_session(golden_session.record(tmp_path)), "local")]
    verdicts = {fields["task"]: fields for fields in records if fields["record"] == "verdict"}
    assert len(verdicts) == len(golden_session.TASKS) + 1
    together = verdicts["all tasks together"]
    assert (together["arm"], together["against"], together["verdict"]) == ("gp3", "gp2", "slower")
    assert together["p50_ratio_low"] < together["p50_ratio"] < together["p50_ratio_high"]


def test_the_dashboards_table_of_verdicts_shows_what_verdicts_hold(tmp_path: Path) -> None:
    records = [d.fields for d in documents(load_session(golden_session.record(tmp_path)), "local")]
    objects = {o["type"]: o["attributes"] for o in map(json.loads, render_dashboard().splitlines())}
    for verdict in (fields for fields in records if fields["record"] == "verdict"):
        assert set(objects["search"]["columns"]) <= verdict.keys()


def test_every_document_says_what_it_belongs_to_and_whether_it_is_emulated(session: Session) -> None:
    for document in documents(session, "lab"):
        assert document.fields["race-id"] == "s-1"
        assert document.fields["race-timestamp"] == "20231114T221320Z"
        assert document.fields["environment"] == "lab"
        assert document.fields["emulated"] is True


def test_the_values_are_those_of_the_session_in_base_units(session: Session) -> None:
    by_record = {d.fields["record"]: d.fields for d in documents(session, "local")}
    assert by_record["baseline"]["iops"] == 3000.0
    assert by_record["residency"]["resident_after"] == 0.001
    assert by_record["residency"]["@timestamp"] == round((START + 2) * 1000)
    # a value that is no number becomes null, which JSON has
    assert by_record["telemetry"]["telemetry"] == {"device_reads_per_s": 7.0, "device_queue_depth": None}
    assert "gp3" in {fields.get("volume-type") for fields in by_record.values()}


def test_each_volume_of_a_stripe_keeps_what_cloudwatch_tells_of_it(tmp_path: Path) -> None:
    path = make(tmp_path)
    with SessionFolder(path).part_writer("telemetry") as writer:
        writer.add(
            TelemetryPoint(arm="a", device=of, at_s=START + 60, metric="cloudwatch.reads", value=v, unit="")
            for of, v in (("vol-1", 5.0), ("vol-2", 7.0))
        )
    reads = {
        document.fields["device"]: document.fields["telemetry"]["cloudwatch_reads"]
        for document in documents(load_session(path), "local")
        if "device" in document.fields
    }
    assert reads == {"vol-1": 5.0, "vol-2": 7.0}


def test_the_same_session_gives_the_same_ids_so_that_it_is_replaced(session: Session) -> None:
    first, second = ([d.id for d in documents(session, "local")] for _ in range(2))
    assert first == second


class Store(BaseHTTPRequestHandler):
    """What a test needs of an Elasticsearch: takes templates and bulk requests, or refuses every document."""

    taken: list[dict[str, Any]]
    refuse: bool

    def do_PUT(self) -> None:
        lines = [json.loads(line) for line in self.body().splitlines()]
        if self.path != "/_bulk":
            self.answer({"acknowledged": True})
            return
        actions = lines[::2]
        self.taken += actions
        error = {"error": {"reason": "mapper [iops] cannot be changed"}, "status": 400}
        status = error if self.refuse else {"status": 201}
        self.answer({"errors": self.refuse, "items": [{"index": status} for _ in actions]})

    def body(self) -> str:
        return self.rfile.read(int(self.headers["Content-Length"])).decode()

    def answer(self, document: dict[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", "application/vnd.elasticsearch+json;compatible-with=8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def metrics_store(*, refuse: bool = False) -> Iterator[tuple[StoreAddress, list[dict[str, Any]]]]:
    taken: list[dict[str, Any]] = []
    handler = type("Handler", (Store,), {"taken": taken, "refuse": refuse})
    with serving(handler) as port:
        yield StoreAddress(host="127.0.0.1", port=port), taken


def test_all_documents_go_to_the_index_of_the_month_that_the_session_began_in(session: Session) -> None:
    with metrics_store() as (store, taken):
        sent = send(session, store)
    assert (sent.documents, sent.index) == (4, "rally-ebs-2023-11")
    assert {action["index"]["_index"] for action in taken} == {sent.index}


def test_a_document_that_is_refused_is_told_in_one_line_with_the_next_step(session: Session) -> None:
    with metrics_store(refuse=True) as (store, _), pytest.raises(SetupError) as failed:
        send(session, store)
    assert "4 documents refused, the first: mapper [iops] cannot be changed" in str(failed.value)
    assert "'esrally-ebs push s-1' sends it again" in str(failed.value)


def test_a_store_that_is_slow_is_given_up(session: Session) -> None:
    times = iter([0.0, 121.0])
    with metrics_store() as (store, _), pytest.raises(SetupError, match="0 documents took over 120 s"):
        send(session, store, clock=lambda: next(times))


def ini(home: Path, *lines: str) -> Path:
    """A rally.ini whose [reporting] holds these lines."""
    folder = home / ".rally"
    folder.mkdir(parents=True, exist_ok=True)
    sections = ("[meta]", "config.version = 17", "[system]", "env.name = lab", "[reporting]")
    (folder / "rally.ini").write_text("\n".join((*sections, *lines)) + "\n")
    return home


ADDRESS = ("datastore.type = elasticsearch", "datastore.host = es.example", "datastore.port = 9243")


@pytest.fixture
def rally_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RALLY_HOME", str(tmp_path))
    return tmp_path


def test_the_address_is_that_of_rallys_configuration(rally_home: Path) -> None:
    more = ("datastore.secure = True", "datastore.user = u", "datastore.password = p")
    ini(rally_home, *ADDRESS, *more, "datastore.number_of_replicas = 0")
    store = configured_store(None)
    assert store.url == "https://es.example:9243"
    assert (store.user, store.password, store.environment, store.verify) == ("u", "p", "lab", True)
    assert template(store)["template"]["settings"]["index"] == {"number_of_replicas": 0}
    assert "p" not in repr(store).split("password")[-1][:5]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("datastore.type = in-memory",), "Rally keeps its metrics in memory"),
        (ADDRESS[:1], "give datastore.host and .port"),
        ((*ADDRESS[:2], "datastore.port = nine"), "datastore.port = nine: not a number"),
        ((*ADDRESS[:2], "datastore.port = 92000"), r"\.port = 92000: no host and port"),
        ((ADDRESS[0], "datastore.host = https://es.example", ADDRESS[2]), "without http://"),
        ((*ADDRESS, "datastore.password = pa$"), r"line 9, col 24\); .* \$ is written \$\$"),
        ((*ADDRESS, "datastore.password = a$hunter2"), r"ini: Rally cannot read it \(KeyError\); mend"),
        ((*ADDRESS, "datastore.password = a%hunter2"), r"Error at datastore\.password\); .* % is %%"),
        ((*ADDRESS, "datastore.port = 1"), r"DuplicateOptionError in line 9\)"),
        (("[reporting]",), r"DuplicateSectionError in line 6\)"),
    ],
)
def test_a_configuration_without_a_store_is_refused_with_what_to_write(
    rally_home: Path, lines: tuple[str, ...], text: str
) -> None:
    ini(rally_home, *lines)
    with pytest.raises(PlanError, match=text) as refused:
        configured_store(None)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("host", ["2001:db8::7", "[2001:db8::7]"])
def test_a_store_may_have_an_address_of_ipv6(rally_home: Path, host: str) -> None:
    ini(rally_home, ADDRESS[0], f"datastore.host = {host}", ADDRESS[2])
    assert configured_store(None).url == "http://[2001:db8::7]:9243"


def test_a_configuration_that_is_not_there_is_named(rally_home: Path) -> None:
    with pytest.raises(PlanError, match=r"rally-lab\.ini: not there"):
        configured_store("lab")


class Config:
    """A race's configuration as Rally hands it over."""

    def __init__(self, **reporting: str) -> None:
        self.reporting = reporting

    def opts(self, section: str, key: str, *, mandatory: bool, default_value: object) -> object:
        return self.reporting.get(key.replace("datastore.", ""), default_value)


def test_a_store_that_is_down_is_one_warning_and_the_session_keeps_its_state(tmp_path: Path) -> None:
    path = make(tmp_path)
    warnings: list[str] = []
    port = str(free_port())
    keep(Config(type="elasticsearch", host="127.0.0.1", port=port), path, warn=warnings.append)
    (warning,) = warnings
    assert warning.startswith(f"metrics store http://127.0.0.1:{port}: ")
    assert "\n" not in warning
    after = load_session(path)
    assert after.state is State.COMPLETE
    assert warning in after.warnings


def test_a_race_without_a_store_sends_nothing(tmp_path: Path) -> None:
    keep(Config(), make(tmp_path), warn=pytest.fail)


def test_the_command_sends_a_session_that_was_recorded_earlier(
    rally_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(rally_home))
    make(rally_home)
    with metrics_store() as (store, taken):
        ini(rally_home, ADDRESS[0], f"datastore.host = {store.host}", f"datastore.port = {store.port}")
        assert main(["push", "s-1"]) == 0
    assert len(taken) == 4
    assert "4 documents of session s-1 are in rally-ebs-2023-11" in capsys.readouterr().out


def test_every_object_of_the_dashboard_is_there_for_each_that_refers_to_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["dashboard"]) == 0
    text = capsys.readouterr().out
    assert text == render_dashboard()
    objects = {(o["type"], o["id"]): o for o in map(json.loads, text.splitlines())}
    for saved in objects.values():
        assert all((r["type"], r["id"]) in objects for r in saved["references"])
    board = objects["dashboard", "rally-ebs"]
    placed = json.loads(board["attributes"]["panelsJSON"])
    assert len(placed) == len(panels()) + 1 == len(board["references"])
    spots = [(p["gridData"]["x"], p["gridData"]["y"]) for p in placed]
    assert len(set(spots)) == len(spots)
