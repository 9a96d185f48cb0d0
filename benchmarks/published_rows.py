"""The words of published rows: what a row says of volume, instance and workload in; a VolumeSpec and an fio
job out.

A word that is not understood is a ValueError: nothing is guessed for a row that says something else. What a
row does not say at all is filled in by the rules here, never by row.
"""

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

from esrally_ebs.catalog.generations import instance_named
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.units import GIB, KIB, MIB

Row = Mapping[str, Any]

# A row without depth, count and duration of its fio is taken as one that keeps the volume busy: a process for
# every 100,000 IOPS, as one of fio does no more than 167,000 here.
_BUSY = {"iodepth": 64, "engine": "libaio", "runtime": 60.0}
_IOPS_OF_A_PROCESS = 100_000
_SAID = {"numjobs", "iodepth", "queues", "threads", "size_mib_per_job", "size", "time_based", "runtime"}
# An NFS client reads ahead 15 MiB in requests of 1 MiB (rule 53 of amazon-ec2-utils); writes take as many.
_NFS_DEPTH = 15
# Through the page cache a block device gets what the kernel reads ahead (128 KiB, the next window while one
# is read), or the largest requests that there are, as many as its queue holds.
_READ_AHEAD, _WRITE_BACK = (128 * KIB, 2), (256 * KIB, 32)
_TYPES = re.compile(r"\b(gp2|gp3|io1|io2|st1|sc1|standard|magnetic|efs)\b")
_STRIPED = re.compile(r"(?:^|\D)0(?:\D|$)|stripe|none", re.IGNORECASE)
_LOCAL = re.compile(r"instance[- ]?stor|ephemeral")
_BY_SIZE = ("gp2", "st1", "sc1", "standard", "magnetic", "efs")
_SIZE = re.compile(r"\s*([\d.]+)\s*([kmgt]?)(?:i?b)?\b", re.IGNORECASE)
_FIRST = re.compile(r"\s*(\d[\d,]*+(?:\.\d++)?+)(?!\s*(?:->|to\b|-))")  # not the first of a range
_TIME = re.compile(r"\s*([\d.]+)\s*(s|sec|seconds?|m|min|minutes?|h|hours?)?\s*$", re.IGNORECASE)
_WITHOUT_CREDITS = ("post_burst", "after_burst", "baseline_", "exhausted")


def type_of(row: Row) -> str:
    """The catalog's type."""
    text = str(row["volume"]["type"]).lower().replace("_", "-")
    match = _TYPES.search(text)
    if match is None and not _LOCAL.search(text):
        raise ValueError(f"volume type {text!r}")
    if match and match[1] == "io2" and "block express" in text:
        return "io2-block-express"
    return match[1] if match else "instance-store"


def spec_of(row: Row) -> VolumeSpec:
    """The volume of a row, with its date and instance; PlanError when the catalog does not have it."""
    volume, type_ = row["volume"], type_of(row)
    iops = _number(volume.get("iops"))
    bought = type_ not in _BY_SIZE
    throughput = (
        _number(volume.get("throughput_mib_s")) if type_ in ("gp3", "efs", "instance-store") else None
    )
    if int(volume.get("count") or 1) > 1 and not _STRIPED.search(str(volume.get("raid"))):
        raise ValueError(f"{volume['count']} volumes with RAID {volume['raid']}")
    mode = volume.get("mode")
    return VolumeSpec(
        name=row.get("id") or row.get("study") or "row",
        type=type_,
        size_bytes=int(_size_gib(row, type_, iops) * GIB),
        iops=int(iops) if bought and iops else None,
        throughput_bytes_per_s=None if throughput is None else int(throughput * MIB),
        encrypted=bool(volume.get("encrypted", False)),  # AWS's default
        credits=0.0 if without_credits(row) else 1.0,
        date=str(row["date"])[:10] if row.get("date") else None,
        instance=_instance(row),
        stripes=int(volume.get("count") or 1),
        mode=str(mode).lower() if mode else None,
        one_zone="one zone" in str(volume.get("storage_class", "")).lower(),
    )


def without_credits(row: Row) -> bool:
    """Whether the figure is of a volume whose burst credits are spent."""
    return str(row.get("metric")).startswith(_WITHOUT_CREDITS)


def _size_gib(row: Row, type_: str, iops: float | None) -> float:
    volume = row["volume"]
    tib = _number(volume.get("size_tib"))
    sizes = [_number(volume.get(name)) for name in ("size_gib", "size_gb", "stored_gib")]
    given = next((gib for gib in (*sizes, tib and 1024 * tib) if gib), None)
    if given:
        return given
    if type_ == "gp2":  # its IOPS follow from the size, so the size from them
        base = _number(volume.get("baseline_iops")) or iops
        return max(1.0, base / 3) if base else 100.0
    return max(1000.0, (iops or 0.0) / 50) if type_ in ("io1", "io2", "io2-block-express") else 1000.0


def _number(value: Any) -> float | None:  # noqa: ANN401 - any value of a row
    """A number, or the one that a text begins with and says more of; None for another text, and for none."""
    if isinstance(value, int | float):
        return float(value)
    match = _FIRST.match(value) if isinstance(value, str) else None
    return float(match[1].replace(",", "")) if match else None


def _instance(row: Row) -> str | None:
    """The instance when the catalog has it; EBS shared the network of one not said to be EBS-optimized."""
    given = row.get("instance") or {}
    name = str(given.get("type", "")).split()[0] if given.get("type") else ""
    for candidate in (name,) if given.get("ebs_optimized") else (f"{name}/shared", name):
        try:
            instance_named(candidate, "row")
        except PlanError:
            continue
        return candidate
    return None


def job_of(row: Row) -> BaselineJob:
    """The fio job that does what the row's workload did; ValueError for a tool that is not known."""
    workload = row["workload"]
    tool = str(workload.get("tool", "fio")).lower()
    options = next((make(row) for begins, make in _TOOLS.items() if tool.startswith(begins)), None)
    if options is None:
        raise ValueError(f"tool {tool!r}")
    return BaselineJob.model_validate({"name": "job", **options})


def _fio(row: Row) -> dict[str, Any]:
    workload = row["workload"]
    options = _what(workload, 4 * KIB)  # fio's own default
    if not _SAID & workload.keys():
        return options | _BUSY | {"numjobs": _busy_processes(row), "size": GIB}
    depth = int(workload.get("iodepth") or workload.get("queues") or 1)
    engine = str(workload.get("ioengine", ""))
    synchronous = bool(re.search("sync|mmap", engine))
    options |= {
        "numjobs": int(workload.get("numjobs") or workload.get("threads") or 1),
        "iodepth": depth,
        "engine": "libaio" if re.search("aio|uring", engine) or (depth > 1 and not synchronous) else "psync",
        "size": max(options["bs"], _file_bytes(workload)),
    }
    runtime = _seconds(workload)
    return options | ({"runtime": runtime} if runtime else {})


def _busy_processes(row: Row) -> int:
    rates = [limit.rate for limit in model_for(spec_of(row)).limits if limit.name == "iops"]
    return max(1, ceil(max(rates, default=0) / _IOPS_OF_A_PROCESS))


def _crystal(row: Row) -> dict[str, Any]:
    workload = row["workload"]
    depths = {"iodepth": int(workload.get("queues", 1)), "numjobs": int(workload.get("threads", 1))}
    if (
        workload.get("bs") == "seq"
    ):  # as its table has it: the block that it was set to, 128 KiB unless changed
        workload = {**workload, "bs": None}
    return {**_what(workload, 128 * KIB), **depths, "engine": "libaio", "runtime": 5.0, "size": GIB}


def _iotune(row: Row) -> dict[str, Any]:
    reads = "read" if "read" in row["metric"] else "write"
    small = "iops" in row["metric"]
    options = {"rw": f"rand{reads}" if small else reads, "bs": 4 * KIB if small else MIB}
    return {**options, "engine": "libaio", "iodepth": 128, "runtime": 1.0, "size": GIB}


def _dd(row: Row) -> dict[str, Any]:
    """Over NFS, direct, or through the page cache of a block device."""
    workload = row["workload"]
    options = _what(workload, KIB // 2)
    size = int((_number(workload.get("file_gib")) or 1) * GIB)
    if type_of(row) == "efs":
        return {**options, "bs": MIB, "engine": "libaio", "iodepth": _NFS_DEPTH, "size": size}
    if workload.get("direct") or "flag=direct" in str(workload.get("cmd", "")):
        return {**options, "engine": "psync", "size": size}
    block, depth = _WRITE_BACK if options["rw"] == "write" else _READ_AHEAD
    return {**options, "bs": block, "engine": "libaio", "iodepth": depth, "size": size}


def _hdparm(row: Row) -> dict[str, Any]:
    """``hdparm -t``: reads through the page cache for three seconds."""
    block, depth = _READ_AHEAD
    return {"rw": "read", "bs": block, "engine": "libaio", "iodepth": depth, "runtime": 3.0, "size": GIB}


def _sysbench(row: Row) -> dict[str, Any]:
    """``sysbench fileio``: blocks of 16 KiB, threads that wait, ten seconds, 1.5 reads to a write."""
    workload = row["workload"]
    mode = str(workload.get("rw", ""))
    workload = {"bs": "16k", "runtime": 10, **workload, "rw": _SYSBENCH.get(mode, mode)}
    mixed = {"rwmixread": 60} if mode == "rndrw" else {}
    processes = int(workload.get("numjobs") or workload.get("threads") or 1)
    return {
        **_what(workload, 16 * KIB),
        **mixed,
        "numjobs": processes,
        "runtime": _seconds(workload),
        "size": GIB,
    }


def _ioping(row: Row) -> dict[str, Any]:
    return {**_what(row["workload"], 4 * KIB), "engine": "psync", "size": 4 * MIB}


_SYSBENCH = {
    **{"rndrd": "randread", "rndwr": "randwrite", "rndrw": "randrw"},
    **{"seqrd": "read", "seqwr": "write", "seqrewr": "write"},
}
_TOOLS = {
    "fio": _fio,
    "diskspd": _fio,
    "crystaldiskmark": _crystal,
    "iotune": _iotune,
    "dd": _dd,
    "ioping": _ioping,
    "hdparm": _hdparm,
    "sysbench": _sysbench,
}


def _what(workload: Row, default_bytes: int) -> dict[str, Any]:
    return {
        "rw": _direction(str(workload.get("rw", ""))),
        "bs": _block(workload, default_bytes),
        "rwmixread": _mix(workload),
    }


def _direction(text: str) -> str:
    text = text.lower()
    mixed = re.search(r"\brw|randrw|mix", text) or ("read" in text and "write" in text)
    name = "rw" if mixed else next((word for word in ("read", "write") if word in text), "")
    if not name:
        raise ValueError(f"rw {text!r}")
    if "rand" in text:
        return f"rand{name}"
    return "readwrite" if mixed else name


def _mix(workload: Row) -> int:
    if "rwmixread" in workload:
        return int(workload["rwmixread"])
    match = re.search(r"(\d+)\s*(?:%|/\s*\d+)", str(workload.get("rw", "")))
    return int(match[1]) if match and "rw" in str(workload.get("rw")).lower() else 50


def _block(workload: Row, default_bytes: int) -> int:
    if "bs_kib" in workload:
        return int(workload["bs_kib"] * KIB)
    return _bytes(workload["bs"]) if workload.get("bs") else default_bytes


def _bytes(value: Any) -> int:  # noqa: ANN401 - any value of a row
    """fio's sizes: units of 1024, whatever their case."""
    if isinstance(value, int | float):
        return int(value)
    match = _SIZE.match(str(value))
    if not match:
        raise ValueError(f"bs or size {value!r}")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def _file_bytes(workload: Row) -> int:
    """Of each job; a share of a device is as good as a GiB."""
    if "size_mib_per_job" in workload:
        return int(workload["size_mib_per_job"] * MIB)
    gib = _number(workload.get("size_gib")) or _number(workload.get("file_gib"))
    if gib:
        return int(gib * GIB)
    size = workload.get("size")
    return GIB if size is None or "%" in str(size) else _bytes(size)


def _seconds(workload: Row) -> float | None:
    """For how long a job ran; ``time_based`` may hold it itself, or only say that ``runtime`` does."""
    for name in ("runtime", "runtime_s", "duration_s", "time_s", "time_based"):
        value = workload.get(name)
        if value is None or isinstance(value, bool) or (name == "time_based" and value == 1):
            continue
        match = _TIME.match(str(value))
        if not match:
            raise ValueError(f"{name} {value!r}")
        return float(match[1]) * {"m": 60.0, "h": 3600.0}.get((match[2] or "s")[0].lower(), 1.0)
    return None
