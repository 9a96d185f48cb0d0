"""Whatever a user, another machine or a disk can put before the pack: each is read, or refused in one line.

``make fuzz`` tries many inputs of each kind, the suite a few. A failure names the number of its input, which
draws the same one again; those that once failed are tried always.
"""

import json
import os
import random
import shutil
import signal
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, cast

import golden_session
import pytest
from mutations import ODD, changed, mutated
from small_plan import small_plan
from stored import GP2
from usage_logs import IOSTAT

from esrally_ebs import report
from esrally_ebs.advice.advice import usage_options
from esrally_ebs.advice.traces import lacks, parse_trace
from esrally_ebs.advice.usage import parse_usage
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.analysis.gate import parse_limit
from esrally_ebs.aws.ebs_statistics import COUNTERS, PAGE_BYTES, parse_log_page, parse_stats_json
from esrally_ebs.catalog.cost import price_list
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.procfs import (
    parse_diskstats,
    parse_maps,
    parse_memory_stat,
    parse_mountinfo,
    parse_tcp,
)
from esrally_ebs.machine.resources import resource
from esrally_ebs.model import VolumeSpec, session_name
from esrally_ebs.plan import parse_plan
from esrally_ebs.plan.plan import keys_by_table
from esrally_ebs.rally.cars import VARIABLES, load_settings
from esrally_ebs.rally.settings import plan_for
from esrally_ebs.report.documents import documents
from esrally_ebs.report.gate import judge_session, render_gate, render_junit
from esrally_ebs.session import keeper
from esrally_ebs.session.root_steps import RootSteps
from esrally_ebs.store import find_session, list_sessions, load_session
from esrally_ebs.store.context import Arm, Context, Member, load_context
from esrally_ebs.telemetry.gc_log import parse_pauses
from esrally_ebs.units import GIB, parse_bytes, parse_rate, parse_seconds
from esrally_ebs.volumes.emulated.daemon.admission import Admission
from esrally_ebs.volumes.fio import parse_fio
from esrally_ebs.volumes.record import Record, read_record, write_record
from esrally_ebs.workload.corpus.convert import parse_names, parse_row, parse_stations

INPUTS = int(os.environ.get("FUZZ_INPUTS", "60"))
LIMIT_S = 60  # of one input; what takes longer hangs
DATA = Path(__file__).parents[1] / "support" / "data"
TRACES = Path(__file__).parents[1] / "golden" / "traces"
PRICES = Path(__file__).parents[2] / "esrally_ebs/catalog/prices.json"
KEPT: Mapping[str, tuple[int, ...]] = {"session": (7, 408, 935), "names": (138,), "control": (302,)}


@dataclass(frozen=True)
class Place:
    """Where a reader finds its files, and what it draws with."""

    folder: Path
    draw: random.Random


Try = Callable[[Place], object]


def of_bytes(seeds: Callable[[], list[bytes]], read: Callable[[bytes], object]) -> Try:
    """Valid inputs with changes in them."""
    known: list[bytes] = []

    def attempt(place: Place) -> object:
        known.extend(() if known else seeds())
        return read(mutated(place.draw, place.draw.choice(known), known))

    return attempt


def decoded(read: Callable[[str, str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode(errors="replace"), "source")


def of_text(read: Callable[[str, str], object], *seeds: str) -> Try:
    return of_bytes(lambda: [seed.encode() for seed in seeds], decoded(read))


def of_file(seeds: Callable[[], list[bytes]], name: str, read: Callable[[Path], object]) -> Try:
    def attempt(place: Place) -> object:
        def write(data: bytes) -> object:
            (place.folder / name).write_bytes(data)
            return read(place.folder / name)

        return of_bytes(seeds, write)(place)

    return attempt


def plans() -> list[bytes]:
    return [path.read_bytes() for path in sorted(resource("pipelines").glob("*.toml"))]


def plan_keys(place: Place) -> object:
    """Any value at any key of a plan, as ``--set`` would have it."""
    if place.draw.random() < 0.1:  # drawn first: so the same ones are read, whatever keys there are
        return parse_plan(plans()[0].decode(), "p.toml", {"design.seed": place.draw.randrange(9)})
    plan = place.draw.choice(plans()).decode()
    keys = {"": tuple(tomllib.loads(plan)), **keys_by_table()}
    table = place.draw.choice(sorted(keys))
    key = ".".join(filter(None, (table, place.draw.choice(keys[table]))))
    return parse_plan(plan, "p.toml", {key: odd(place.draw)})


def odd(draw: random.Random) -> Any:  # noqa: ANN401
    return changed(draw, draw.choice((0, "1GiB", [1, "a"], {"a": 1, "b": [2]}, draw.choice(ODD))))


def track_params(place: Place) -> object:
    valid = {"rounds": 2, "iterations": 3, "documents": 1000, "cache": "cold", "set": {"design.margin": 0.1}}
    valid |= {"volumes": "a=/mnt/a,b=/mnt/b", "accept": "readahead", "warmup_iterations": 1}
    params = changed(place.draw, dict(place.draw.sample(sorted(valid.items()), 2)))
    return plan_for(params if isinstance(params, dict) else {}, test_mode=place.draw.random() < 0.3)


def cars(place: Place) -> object:
    names = place.draw.choice((["defaults"], [], ["defaults", "2gmemory"], ["x"]))
    keys = (*VARIABLES, "indices.queries.cache.size", "x", "", "a.b\\n")
    return load_settings(names, {place.draw.choice(keys): odd(place.draw) for _ in range(2)})


def sizes(place: Place) -> object:
    parse = place.draw.choice((parse_bytes, parse_rate, parse_seconds))
    text = mutated(
        place.draw, place.draw.choice((b"100GiB", b"125MiB/s", b"1.5h", b"1e400", b"-0")), [b"9" * 400]
    )
    return parse(text.decode(errors="replace"))


def names(place: Place) -> object:
    text = mutated(place.draw, place.draw.choice((b"2023-nightly", b"..", b"latest", b"/data")), [b"\0"])
    word = text.decode(errors="surrogateescape")
    place.draw.choice((session_name, parse_limit, lambda name: find_session(place.folder, name)))(word)
    return None


def session(place: Place) -> object:
    """A recorded session with one of its files changed, and all that is done with one."""
    whole = place.folder.parent / "whole"
    if not whole.exists():
        golden_session.record(whole)
    home = place.folder / "home"
    shutil.copytree(whole, home)
    path = home / "sessions" / "golden"
    files = sorted(file for file in path.rglob("*") if file.is_file())
    file = place.draw.choice((path / "session.json", path / "events.jsonl", *files))
    data = file.read_bytes()
    if file.suffix == ".json" and place.draw.random() < 0.8:
        record = json.loads(data)
        del record["crc32"]
        for _ in range(place.draw.randint(1, 3)):
            record = changed(place.draw, record)
        data = json.dumps(record).encode()
    elif file.suffix == ".jsonl" and place.draw.random() < 0.8:
        lines = [json.loads(line) for line in data.splitlines()]
        for line in lines:
            del line["crc32"]
        lines = [changed(place.draw, line) if place.draw.random() < 0.2 else line for line in lines]
        data = "\n".join(map(json.dumps, lines)).encode()
    else:
        data = mutated(place.draw, data, [data])
    spoil(place.draw, file, data)
    list_sessions(home)
    return whole_use(path)


def spoil(draw: random.Random, file: Path, data: bytes) -> None:
    file.unlink()
    how = draw.randrange(40)
    if how == 0:
        os.mkfifo(file)
    elif how == 1:
        file.symlink_to(draw.choice(("/dev/zero", "/etc/passwd", file.name)))
    elif how == 2:
        file.mkdir()
    elif how > 3:
        file.write_bytes(data)


def whole_use(path: Path) -> object:
    recorded = load_session(path)
    built = report.build(recorded)
    for render in report.RENDERERS.values():
        render(built)
    for _ in documents(recorded, "env"):
        pass
    judged = judge_session(recorded, [parse_limit("p50=5%")])
    return render_gate(recorded, judged), render_junit(recorded, judged)


def used(text: str, source: str) -> object:
    """A log of what a volume did, and what is said of it."""
    intervals = parse_usage(text, source)
    options, _ = usage_options(intervals, GP2.spec, region="us-east-1", types=("gp3", "st1"))
    built = build_usage(source, intervals, options, region="us-east-1")
    return [render(built) for render in report.RENDERERS.values()]


def volume_record(place: Place) -> object:
    written = place.folder / "arm"
    write_record(written, Record(backend="emulated", name="a", type="gp2", created=(written / "disk",)))
    file = next(written.iterdir())
    data = file.read_bytes()
    file.write_bytes(mutated(place.draw, data, [data, b'{"created": "/", "backend": 3}']))
    return read_record(written)


def context(place: Place) -> object:
    arms = (Arm(name="gp2", cluster="default", members=(Member(volume=GP2),)),)
    prepared = Context(session="s", folder=Path("/f"), run=place.folder, plan=small_plan(), arms=arms)
    prepared.save()
    values = changed(place.draw, json.loads(prepared.path.read_text()))
    prepared.path.write_text(json.dumps(values))
    return load_context(prepared.path)


def control(place: Place) -> object:
    """What is sent to a volume's daemon, of which none may make it hang."""
    model = model_for(VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB))
    given = {"seed": 1, "credits": 1.0, "time_scale": 1.0, "instance_page": None}
    admission = Admission({"model": model.to_json(), **given}, 0.0)
    overhead = [[[1e-5, 0.0], [2e-5, 1e-9]]] * 2
    valid = {"unlimited": False, "time_scale": 2, "refill": True, "drain": False, "credits": 0.5}
    valid |= {"fixed_latency_s": [0.001, 0.002], "overhead": overhead}
    request = changed(place.draw, dict(place.draw.sample(sorted(valid.items()), 2)))
    try:
        admission.change(request if isinstance(request, dict) else {}, 1.0)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise SetupError(repr(error)) from error  # as the daemon's end of the socket answers it
    _, due_s, _ = admission.schedule(0, 16_384, 5.0, write=False, in_flight=0)
    assert -100 < due_s < 100
    return due_s


class Asked:
    """Takes what the steps that need root take, and does nothing."""

    def __init__(self) -> None:
        steps = RootSteps()
        for name in keeper.OPERATIONS:
            setattr(self, name, wraps(getattr(steps, name))(lambda **arguments: None))


SETTINGS = {"heap_bytes": 1, "memory_bytes": 2, "cpus": 1.5, "es_settings": {"a.b": "c"}}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "begin": {"session": "s", "folder": "/home/u/s", "watched": [7, 8]},
    "attach": {"specs": [{"name": "a", "type": "gp3", "size_bytes": GIB, "mount": "/mnt"}]},
    "start_nodes": {"on": ["a"], "settings": SETTINGS, "repository": "lent_1"},
    "start_shared": {"copies": {"a": {"A" * 22: "B" * 22}}, "settings": SETTINGS},
    "keep": {"arm": "a"},
    "bring_back": {"arm": "a"},
    "require_kept": {"arm": "a", "hash_": "0" * 64},
    "engine_facts": {"images": ["image:1"]},
    "evict": {"arm": "a"},
    "lend": {"read_only": True},
    "take_down": {},
}
SERVICE = keeper.KeeperService(cast(RootSteps, Asked()), 0)


def root_request(place: Place) -> object:
    """What a caller's process sends to root's, as values and as bytes."""
    operation = place.draw.choice(sorted(REQUESTS))
    request = {"operation": operation, "arguments": REQUESTS[operation]}
    valid = json.dumps(request).encode()
    if place.draw.random() < 0.5:
        line = mutated(place.draw, valid, [valid])
    else:
        line = json.dumps(changed(place.draw, request)).encode()
    answer, _ = SERVICE.answer(line, [0])
    if "error" in answer:
        raise SetupError(answer["error"]["text"])
    return answer["result"]


FIO = sorted(DATA.glob("fio-*.json"))
ROWS = ("USW00093193,20160117,TMIN,161,,,7,0700", "AE000041196,20160101,TAVG,229,H,,S,")
STATION = "USW00093193  36.7800 -119.7194  101.5 CA FRESNO YOSEMITE INTL AP        GSN HCN 72389"
MOUNTS = "29 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n30 29 0:26 / /a\\040b rw - tmpfs tmpfs rw\n"
DISKS = " 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n   7 3 loop3 1 2 3 4 5 6 7 8 9 10 11\n"
MAPS = "7f00-7f10 r--s 00000000 07:03 131 /data/_0.cfs\n7f20-7f30 rw-p 00000000 00:00 0 [heap]\n"
TCP = "  sl\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 12345 1\n"
PAUSE = "[2023-11-14T22:13:20.000+0000][1.5s][info][gc] GC(7) Pause Young (Normal) 10M->5M(1024M) 12.345ms\n"
PAGE = (0x3C23B510).to_bytes(4, "little") + bytes(PAGE_BYTES)
BINS = {"num_bins": 1, "bins": [{"lower": 0, "upper": 1, "count": 2}]}
STATS = json.dumps(
    {**dict.fromkeys(COUNTERS, 5), **{f"{op}_io_latency_histogram": BINS for op in ("read", "write")}}
)

SUMS = {"Timestamps": ["2026-11-22T10:00:00+00:00", "2026-11-22T10:01:00+00:00"], "Values": [600, 1200]}
NAMES = ("ReadOps", "ReadBytes", "WriteOps", "WriteBytes")
CLOUDWATCH = json.dumps({"MetricDataResults": [{"Label": f"Volume{name}", **SUMS} for name in NAMES]})

KINDS: Mapping[str, Try] = {
    "plan": of_bytes(plans, decoded(parse_plan)),
    "plan keys": plan_keys,
    "track params": track_params,
    "cars": cars,
    "sizes": sizes,
    "names": names,
    "prices": of_file(lambda: [PRICES.read_bytes()], "prices.json", lambda path: price_list(str(path))),
    "session": session,
    "fio": of_bytes(lambda: [path.read_bytes() for path in FIO], decoded(parse_fio)),
    "noaa rows": of_text(lambda text, _: [parse_row(line) for line in text.splitlines()], *ROWS),
    "noaa stations": of_text(
        lambda text, _: parse_stations([text], countries={"US": "United States"}, states={}), STATION
    ),
    "noaa names": of_text(lambda text, _: parse_names(text.splitlines()), "AE United Arab Emirates"),
    "log page": of_bytes(lambda: [PAGE], lambda data: parse_log_page(data, "page")),
    "log page as JSON": of_text(parse_stats_json, STATS),
    "diskstats": of_text(parse_diskstats, DISKS),
    "mountinfo": of_text(parse_mountinfo, MOUNTS),
    "maps": of_text(lambda text, source: parse_maps(text, source, {131}), MAPS),
    "memory.stat": of_text(parse_memory_stat, "anon 1\nfile 2\nfile_mapped 3\npgmajfault 4\n" * 9),
    "tcp": of_text(parse_tcp, TCP),
    "traces": of_bytes(
        lambda: [path.read_bytes() for path in sorted(TRACES.iterdir())],
        decoded(lambda text, source: lacks(parse_trace(text, source))),
    ),
    "usage": of_text(used, IOSTAT, CLOUDWATCH),
    "gc log": of_text(lambda text, _: parse_pauses(text), PAUSE),
    "volume.json": volume_record,
    "context.json": context,
    "control": control,
    "helper": root_request,
}
SLOW = {"session": 2, "prices": 2, "plan": 2, "plan keys": 2, "track params": 2}  # so many times fewer


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_input_is_read_or_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    numbers = dict.fromkeys((*KEPT.get(kind, ()), *range(-(-INPUTS // SLOW.get(kind, 1)))))
    refused = sum(bool(refusal(kind, number, tmp_path)) for number in numbers)
    assert refused < len(numbers), "not one was read: is what is changed valid to begin with?"


def refusal(kind: str, number: int, tmp_path: Path) -> str:
    """Why an input is refused; empty for one that is read. Anything but one line fails."""
    folder = tmp_path / str(number)
    folder.mkdir()
    with in_time():
        try:
            KINDS[kind](Place(folder, random.Random(f"{kind} {number}")))
            return ""
        except EbsError as error:
            text = str(error)
        except Exception as error:
            raise AssertionError(f"{kind}: input {number}: {error!a}") from error
        finally:
            shutil.rmtree(folder)
    assert text, f"{kind}: input {number}: {text!a}"
    return text


@contextmanager
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
