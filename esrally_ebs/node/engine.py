"""The Docker engine for nodes: images, labelled containers, state and logs; errors say what to do."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.errors import CommandError, PlanError, SetupError
from esrally_ebs.machine.processes import last_lines, run
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import LOCAL_IMAGE, OFFICIAL_IMAGE, session_name, short_name

SESSION_LABEL = "esrally-ebs.session"
_ARM_LABEL = "esrally-ebs.arm"
# run directory, so that users of another one do not take the container for left behind
_RUN_LABEL = "esrally-ebs.run"

_SHORT_S = 30.0
_REMOVE_S = 20.0
_LOG_LINES = 80
_UNREACHED = (  # messages of clients until Docker 28, from 29 on, and over SSH
    "cannot connect to the docker daemon",
    "failed to connect to the docker api",
    "error during connect",
)
ELSEWHERE = (
    "the Docker engine does not share this machine's files and processes, as one on another machine, in a "
    "container or of a snap; unset DOCKER_HOST, or take this machine's own engine (see 'docker context ls')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    pid: int  # of its first process, in the host's namespace; 0 if not running
    running: bool
    exit_code: int
    out_of_memory: bool
    ports: Mapping[int, int]  # container's port -> port on 127.0.0.1


class EngineDownError(SetupError):
    """No engine, or none that answers: no container runs or can be started."""


def docker(*words: str, timeout_s: float = _SHORT_S, env: Mapping[str, str] | None = None) -> str:
    """Run the Docker client; returns its output.

    Raises EngineDownError without an engine, SetupError without Compose or the right to use the engine.
    """
    try:
        return run(["docker", *words], timeout_s=timeout_s, env=env)
    except CommandError as error:
        raise explained(str(error)) from error
    except SetupError as error:
        raise EngineDownError("docker: not installed; run 'make setup', then 'esrally-ebs doctor'") from error


def explained(text: str) -> SetupError:
    """An error with the next step if the engine itself is at fault; else with the command's output."""
    lower = text.lower()
    if "permission denied" in lower and "docker" in lower and "sock" in lower:
        return EngineDownError(
            "docker: this user may not use the engine; run as root or: sudo usermod -aG docker $USER"
        )
    if any(words in lower for words in _UNREACHED):
        return EngineDownError(
            "docker: the engine does not answer; run 'make setup' or: sudo systemctl start docker"
        )
    if re.search(
        r"(unknown command: docker compose|'compose' is not a docker command|unknown shorthand flag)", text
    ):
        return SetupError(
            f"docker compose: plugin not found with HOME={os.environ.get('HOME', '')}; run 'make setup', "
            "or set HOME back to where ~/.docker/cli-plugins is"
        )
    if "bind source path does not exist" in lower:  # which is one of ours
        return SetupError(ELSEWHERE)
    return CommandError(text)


def choose_image(env: Mapping[str, str]) -> str:
    """Image to run: ``ES_IMAGE``, else the official one if pulled, else the local one if built.

    Pulls nothing. Raises SetupError if the image is not on this machine.
    """
    wanted = env.get("ES_IMAGE")
    for image in [wanted] if wanted else [OFFICIAL_IMAGE, LOCAL_IMAGE]:
        if _has_image(image):
            return image
    if wanted:
        raise SetupError(f"ES_IMAGE={wanted}: not on this machine; run: docker pull {wanted}")
    raise SetupError(
        f"no Elasticsearch image; run 'docker pull {OFFICIAL_IMAGE}', or 'make image' without a registry"
    )


def _has_image(image: str) -> bool:
    try:
        docker("image", "inspect", "--format", "{{.Id}}", image)
    except CommandError:
        return False
    return True


def inspect(container: str) -> Container | None:
    """A container's state; None if it does not exist."""
    try:
        return parse_inspect(docker("container", "inspect", container))
    except CommandError:
        return None


def parse_inspect(text: str) -> Container:
    container: dict[str, Any] = json.loads(text)[0]
    state = container["State"]
    published = container.get("NetworkSettings", {}).get("Ports") or {}
    return Container(
        pid=state["Pid"],
        running=state["Status"] == "running",
        exit_code=state["ExitCode"],
        out_of_memory=state.get("OOMKilled", False),
        ports={
            int(port.partition("/")[0]): int(entry["HostPort"])
            for port, entries in published.items()
            for entry in entries or []
        },
    )


def log(container: str) -> str:
    """A container's last lines on stdout and stderr; "" if it is gone."""
    script = f'exec docker logs --tail {_LOG_LINES} "$1" 2>&1'
    try:
        return run(["sh", "-c", script, "sh", container], timeout_s=_SHORT_S)
    except SetupError:
        return ""


_CAUSE = re.compile(
    r"fatal exception while booting Elasticsearch\s*(.+)|Caused by: (.+)|^(?:ERROR|Error)[: ]\s*(.+)"
)
# printed to stderr after any end; the engine may log it before the cause on stdout
_AFTERMATH = re.compile(r"^ERROR: Elasticsearch (?:did not exit normally|exited unexpectedly)")
_LOG_PREFIX = re.compile(r"^\[[^]]*\]\[(?:ERROR|WARN ?)\s*\]\[[^]]*\]\s*")
# printed by every healthy node: ciphers, bootstrap checks, our own early request
_NOISE = re.compile(r"unsupported ciphers|BootstrapChecks|path: /_cluster/health")
# from a single node; Elasticsearch calls it a mistake in its settings
_OF_SEVERAL = "does not have quorum in voting configuration"


def reason(text: str) -> str:
    """Why Elasticsearch ended, from its log: the first complaint, else the last lines."""
    if _OF_SEVERAL in text:
        return (
            "its data are of a node that was one of several; restore the indices to a single node, from a "
            "snapshot, stop that, and give its data (or give the snapshot)"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.search(line)]
    for line in lines:
        cause = None if _AFTERMATH.match(line) else _CAUSE.search(line)
        if cause:
            return next(part for part in cause.groups() if part)[:400]
    complaints = [_LOG_PREFIX.sub("", line) for line in lines if _LOG_PREFIX.match(line)]
    return (complaints[-1] if complaints else last_lines("\n".join(lines)))[:400]


def run_label() -> str:
    """The run directory in labels: its real path, independent of links."""
    return os.path.realpath(run_dir())


def project(session: str, arm: str) -> str:
    """Compose's project name for a node, unique by session and arm."""
    return f"ebs-{short_name(session)}-{arm}"


_LISTS: Mapping[tuple[str, ...], tuple[str, ...]] = {  # listing commands for each kind, and removing ones
    ("ps", "-a", "--no-trunc"): ("rm", "-f", "-v"),
    ("network", "ls", "--no-trunc"): ("network", "rm"),
    ("volume", "ls"): ("volume", "rm", "-f"),
}
_LABELS = (SESSION_LABEL, _ARM_LABEL, "com.docker.compose.project", _RUN_LABEL)
_FORM = "".join(f'{{{{json (.Label "{label}")}}}},' for label in _LABELS)


def _ours(listing: tuple[str, ...], *, label: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Id, session, arm and run directory of all that Compose made for sessions of ours, or with ``label``.

    Labels alone prove nothing: images give theirs to every container, and users may set any. But no image
    names its container. Values are JSON, as they may contain tabs and newlines.
    """
    name = ".Names" if listing[0] == "ps" else ".Name"
    form = f"[{_FORM}{{{{json {name}}}}},{{{{json {'.Name' if listing[0] == 'volume' else '.ID'}}}}}]"
    here = f"label={label or f'{_RUN_LABEL}={run_label()}'}"
    for line in filter(None, docker(*listing, "--filter", here, "--format", form).split("\n")):
        session, arm, of, where, name, resource = json.loads(line)
        with suppress(PlanError):  # not a session's name
            if of == project(session_name(session), arm) and name.startswith(of):
                yield resource, session, arm, where


def leftovers() -> list[str]:
    """Sessions of this run directory that still have a container, network or volume."""
    return sorted({session for listing in _LISTS for _, session, *_ in _ours(listing)})


def folders_elsewhere() -> list[Path]:
    """Folders of sessions in other run directories that have such a resource; they need not exist."""
    with suppress(SetupError):
        rows = [row for listing in _LISTS for row in _ours(listing, label=_RUN_LABEL)]
        every = {Path(where, session) for _, session, _, where in rows if Path(where).is_absolute()}
        return sorted(folder for folder in every if str(folder.parent) != run_label())
    return []


def remove(session: str, *, arm: str | None = None) -> None:
    """Kill and remove all containers, networks and volumes of a session (or one of its arms). Idempotent.

    Nodes get no time to shut down; without an engine there is nothing to remove. Raises SetupError, naming
    what stays.
    """
    until = time.monotonic() + _REMOVE_S
    with suppress(EngineDownError):
        while problem := _remove_once(session, arm):
            if time.monotonic() > until:
                raise SetupError(
                    f"session {session}: its nodes cannot be removed: {problem}; run 'esrally-ebs clean'"
                )
            time.sleep(0.2)


def _remove_once(session: str, arm: str | None) -> str:
    """One attempt; "" if nothing is left, else what is (another process may be removing it, too)."""
    problem = ""
    for listing, removing in _LISTS.items():
        names = [name for name, of, at, _ in _ours(listing) if of == session and arm in (None, at)]
        if names:
            problem = f"{removing[0]} {' '.join(names)}"
            try:
                docker(*removing, *names)
            except CommandError as error:
                problem = str(error)
    return problem
