"""The steps of a session that need root, one method each; callers are root or ask the keeper (``keeper.py``).

Requests name volumes and nodes by their arms, not by path or process. Two exceptions: the session's record
and the processes whose end ends the session, which must be the caller's; and folders of an index.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from esrally_ebs import node as nodes
from esrally_ebs.aws.ebs_statistics import LogPage, StatisticsReader
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.private import give_tree, make_folder, opened_below, require_unchangeable
from esrally_ebs.machine.resources import home
from esrally_ebs.model import NODE_USER, Backend, Node, Volume, VolumeSpec, session_name
from esrally_ebs.node import kept
from esrally_ebs.node.copies import ALL_ARMS
from esrally_ebs.node.dataset import hash_of
from esrally_ebs.node.eviction import Eviction, evict_node
from esrally_ebs.plan import Plan
from esrally_ebs.session import clean, diagnosis, environment, reaper
from esrally_ebs.session.asking import Say, say_nothing
from esrally_ebs.store import running
from esrally_ebs.store.context import ENDING, OF_CALLER, STAYS, Arm, Context, Member
from esrally_ebs.telemetry.gc_log import log_of
from esrally_ebs.telemetry.sources import readers_of
from esrally_ebs.volumes import backends as volumes

StartReaper = Callable[[str, Path, Sequence[int], int], Callable[[], None] | None]
_OPEN_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_POLL_S = 0.2
MAX_LENT = 512  # mounts: one per index of each arm if one node serves them all
_LENT = "lent_"  # prefix of names of lent directories; arms' names have no underscore
_SNAPSHOTS = "snapshots_of_arms"
_IndexFolder = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{22}$")]  # an index's uuid
_Watched = Annotated[tuple[int, ...], Field(max_length=8)]  # the reaper holds a descriptor for each


class RootSteps:
    """A session's steps that need root, for root itself or for a ``caller`` by sudo."""

    def __init__(self, caller: Caller | None = None, *, start_reaper: StartReaper = reaper.start) -> None:
        self.caller = caller
        self._session = ""
        self._context: Context | None = None
        self._volumes: dict[str, Volume] = {}
        self._lent: dict[str, Volume] = {}
        self._nodes: dict[str, Node] = {}
        self._readers: dict[str, list[StatisticsReader]] = {}
        self._starting = 0  # threads that are starting nodes
        self._start_reaper = start_reaper
        self._wait_for_reaper: Callable[[], None] | None = None
        self._lock = threading.RLock()  # guards the session, its volumes and its nodes

    @property
    def is_over(self) -> bool:
        """Whether nothing of the session is left, whoever took it down."""
        return not (self._session and running.is_ours(self._session))

    def ends_within_s(self) -> float:
        """How long taking the session down may take from now on; 0 once that is done, whatever stays."""
        return 0.0 if self.is_over or (self._run / STAYS).exists() else reaper.ends_within_s(self._run)

    def image(self) -> str:
        return nodes.choose_image(os.environ)

    def begin(self, session: str, folder: Path, watched: _Watched) -> None:
        """Own a session, and have it taken down when this process or one of ``watched`` dies.

        ``folder`` is its record.
        """
        session_name(session)  # rejects other sessions' names and those of volumes attached by hand
        with self._lock:
            if not self.is_over:
                raise SetupError(f"session {self._session}: runs still; begin {session} after its end")
            for pid in watched:
                self._require_callers(pid)
            run = running.begin(session)
            self._session = session
            try:
                self._wait_for_reaper = self._start_reaper(session, folder, watched, self._caller_uid or 0)
                if self.caller is not None:
                    for path in (run.parent, run):
                        path.chmod(0o711)  # others may pass through it if they know the name, but not list it
                    make_folder(run / OF_CALLER, self.caller.uid, self.caller.gid)
            except BaseException:
                self.take_down()
                raise

    def attach(self, specs: tuple[VolumeSpec, ...], *, say: Say = say_nothing) -> tuple[Volume, ...]:
        """Attach every arm's volume; on those of a caller two folders are the caller's."""

        def say_while_standing(text: str) -> None:
            self._require_standing()  # a volume that is read from its snapshot takes hours
            say(text)

        with self._lock:
            if self._volumes:
                raise SetupError(f"session {self._session}: has its arms; take it down first")
            for spec in specs:
                self._require_standing()
                volume = volumes.attach(self._safe(spec), self._run / spec.name, say=say_while_standing)
                if self.caller is not None:
                    volumes.let_in(volume, self.caller)
                self._volumes[spec.name] = volume
            return tuple(self._volumes[spec.name] for spec in specs)

    def lend(self, data: int, *, read_only: bool = False) -> str:
        """Bind a directory of the caller's, given as a descriptor, for a node; returns the name to use.

        If ``read_only``, it may be another user's that all may read.
        """
        with self._lock:
            assert self.caller is not None, "root starts a node on the directory itself"
            return self._bind(data, self.caller.uid, read_only=read_only).spec.name

    def give_back(self) -> None:
        with self._lock:
            for name in tuple(self._lent):
                volumes.detach(self._run / name)
                del self._lent[name]

    def calibrate(self) -> dict[str, dict[int, float]]:
        """Measure the cost of I/Os on emulated arms where their data now are; see ``calibrate_on_data``."""
        return volumes.calibrate_on_data(self._volumes.values())

    def start_nodes(
        self, on: tuple[str, ...], settings: nodes.NodeSettings, *, repository: str = ""
    ) -> tuple[Node, ...]:
        """Start one cluster, with a node on each of these volumes of an arm or lent directories.

        ``repository`` names the lent directory for snapshots, which all nodes see.
        """
        chosen = [self._of(self._volumes | self._lent, name) for name in on]
        if not chosen:
            raise SetupError("no volume is named; name those of an arm")
        self._require_local(settings)
        is_cluster_here = len(on) > 1 and on[0] in self._volumes and not settings.apart
        with self._counted():
            started = nodes.start(
                chosen,
                settings,
                session=self._session,
                image=self.image(),
                repository=self._of(self._lent, repository).mount / "elasticsearch" if repository else None,
                snapshots=self._snapshots() if is_cluster_here else None,
                data_of=self._caller_uid,
            )
        self._nodes.update({node.arm: node for node in started})
        return started

    def attach_neutral(self) -> Path:
        """Make a directory on no arm's volume, for the data of one node of all arms; returns its path."""
        with self._lock:
            neutral = self._attach_directory(ALL_ARMS)
            if self.caller is not None:
                volumes.let_in(neutral, self.caller)
            return neutral.mount / "elasticsearch"

    def start_shared(
        self, copies: Mapping[str, Mapping[_IndexFolder, _IndexFolder]], settings: nodes.NodeSettings
    ) -> tuple[Node, ...]:
        """Start one node for all arms on the neutral directory; returns it once per arm, named as the arm's.

        ``copies`` are, by arm, its indices' folders on the volume -> in the node's data directory.
        """
        self._require_local(settings)
        neutral = self._of(self._volumes, ALL_ARMS)
        chosen = {name: self._of(self._volumes, name) for name in copies}
        elsewhere: dict[str, Path] = {}
        with self._lock:
            for name, volume in chosen.items():
                nodes.prepare_data_dir(volume, self._caller_uid)
                for folder, copy in copies[name].items():
                    # by a bind mount, so that the engine looks up no name that the caller could exchange
                    with opened_below(volume.mount, "elasticsearch", "indices", folder) as data:
                        elsewhere[f"indices/{copy}"] = self._bind(data, NODE_USER).mount / "elasticsearch"
        with self._counted():
            (node,) = nodes.start(
                [neutral],
                settings,
                session=self._session,
                image=self.image(),
                elsewhere=elsewhere,
                data_of=self._caller_uid,
            )
        parts = tuple(
            replace(node, arm=name, data_dir=volume.mount / "elasticsearch")
            for name, volume in chosen.items()
        )
        self._nodes.update({part.arm: part for part in parts})
        return parts

    def stop_nodes(self, on: tuple[str, ...]) -> None:
        nodes.stop(*(self._of(self._nodes, name) for name in on))
        for name in on:
            self._nodes.pop(name, None)

    def restart_nodes(self) -> None:
        """Restart all nodes, and write the new ones down for the session's other processes."""
        started = self.restarted(copied=self._published.copied)
        self._renew(started)
        empty_steady_caches(self._published.plan, started, self.evict)

    def restarted(self, copied: bool) -> tuple[Node, ...]:
        """Restart all nodes; with ``copied``, require the same segment files as before."""
        before = tuple(self._nodes.values())
        with self._counted(), nodes.same_segments(before) if copied else nullcontext():
            started = nodes.restart(before)
        self._nodes.update({node.arm: node for node in started})
        return started

    def lose_node(self, arm: str, name: str) -> None:
        """Kill a node of an arm's cluster, restart it without its copies of shards, and write it down."""
        members = self._published.arm(arm).members
        cluster = [self._of(self._nodes, member.volume.spec.name) for member in members]
        with self._counted():
            self._renew(nodes.lose(self._of(self._nodes, name), cluster))

    def _renew(self, started: Sequence[Node]) -> None:
        self._nodes.update({node.arm: node for node in started})
        self._context = replace(self._published, arms=tuple(map(self._with_nodes, self._published.arms)))
        self._context.save()

    def _with_nodes(self, arm: Arm) -> Arm:
        members = (replace(one, node=self._nodes.get(one.volume.spec.name)) for one in arm.members)
        return replace(arm, members=tuple(members))

    def remove_nodes(self) -> None:
        """Remove all nodes of the session at once, including those that another thread is starting."""
        nodes.remove(self._session)
        while self._starting:
            time.sleep(_POLL_S)
            nodes.remove(self._session)
        self._nodes.clear()

    def segments(self, on: tuple[str, ...]) -> list[nodes.Segment]:
        return nodes.segments(*(self._of(self._nodes, name) for name in on))

    def keep(self, arm: str) -> None:
        kept.keep(self._of(self._volumes, arm), of=self._caller_uid)

    def bring_back(self, arm: str) -> kept.BroughtBack:
        """Replace the files of an arm's node by the kept ones."""
        return kept.bring_back(self._of(self._nodes, arm), self._of(self._volumes, arm))

    def require_kept(self, arm: str, hash_: str) -> str:
        """Hash of an arm's kept files. Raises if it is not ``hash_``."""
        return kept.require_kept(self._of(self._volumes, arm), hash_)

    def content_hash(self, on: tuple[str, ...]) -> str:
        """Hash of the segment files on an arm's volumes."""
        return hash_of(self.hashes(on))

    def hashes(self, on: tuple[str, ...]) -> list[dict[str, str]]:
        """Hashes of the segment files on each volume, by path."""
        return [nodes.hashes(self._of(self._volumes, name).mount / "elasticsearch") for name in on]

    def engine_facts(self, images: tuple[str, ...]) -> dict[str, str | None]:
        """The engine's version, under ``""``, and the images' ids."""
        return environment.engine_facts(images)

    def publish(self, context: Context) -> Context:
        """Write down what the session's other processes must know, with volumes and nodes as known here.

        First waits until the reaper is watching: what is measured from now on must survive a power cut.
        """
        if self._wait_for_reaper is not None:
            self._wait_for_reaper()
            self._wait_for_reaper = None
        if self.caller is None:
            self.take(context)
        else:
            arms = tuple(
                replace(arm, members=tuple(self._as_it_is(member.volume) for member in arm.members))
                for arm in context.arms
            )
            context = replace(context, session=self._session, run=self._run, arms=arms, of_caller=True)
            self._context = context
        context.save()
        return context

    def evict(self, arm: str) -> Eviction:
        """Evict an arm's index from memory, and wait until its volume's buckets are full."""
        volume = self._of(self._volumes, arm)
        return evict_node(self._of(self._nodes, arm), lambda: volumes.wait_refilled(volume))

    def cause(self, arm: str) -> str | None:
        """What is broken on an arm; None if nothing is, or if the session is ending."""
        if self._is_ending:
            return None
        broken = self._published.arm(arm)
        others = [other for other in self._published.arms if broken.suffix and other is not broken]
        return diagnosis.cause(broken, others)

    def gc_log(self, arm: str) -> BinaryIO:
        """An arm's node's garbage collection log, opened. Raises OSError if there is none."""
        node = self._of(self._nodes, arm)
        descriptor = os.open(log_of(node), _OPEN_SAFELY)
        facts = os.fstat(descriptor)
        # a process in the container could link to a file of root's there, which no caller may read
        is_others = self.caller is not None and facts.st_uid != NODE_USER
        if not stat.S_ISREG(facts.st_mode) or is_others:
            os.close(descriptor)
            raise SetupError(f"arm {arm}: the log of collections is no file of its node's; see its container")
        return os.fdopen(descriptor, "rb")

    def ebs_page(self, arm: str, disk: int) -> LogPage:
        """EBS performance statistics of one disk of an arm, counted from 0 among disks that have them."""
        volume = self._of(self._volumes, arm)
        with self._lock:
            if arm not in self._readers:
                self._readers[arm] = readers_of(volume)
            if not 0 <= disk < len(self._readers[arm]):
                raise SetupError(
                    f"arm {arm}: has no disk {disk} with EBS statistics; see 'esrally-ebs doctor'"
                )
            return self._readers[arm][disk].read()

    def ending(self) -> None:
        """Tell the reaper to wait, as the session is about to be taken down."""
        with suppress(OSError):  # already taken down; or a full disk, which must not prevent the rest
            (self._run / ENDING).touch()

    def take_down(self) -> list[str]:
        """Remove everything of the session that was begun here; returns a line per thing that stays."""
        if not self._session:
            return []
        self.ending()
        if self._starting:  # started for a process that is gone: no node may come up once its volume is gone
            self.remove_nodes()
        with self._lock:
            for reader in (reader for readers in self._readers.values() for reader in readers):
                reader.close()
            problems = clean.take_down(self._session)
            with suppress(OSError):  # already gone; or a full disk
                if problems:
                    (self._run / STAYS).touch()
            for each in (self._volumes, self._lent, self._nodes, self._readers):
                each.clear()
            return problems

    @contextmanager
    def serve(
        self,
        on: Sequence[Volume],
        settings: nodes.NodeSettings,
        repository: Path | None = None,
        linked: Sequence[Path] = (),
    ) -> Iterator[tuple[Node, ...]]:
        """Nodes on directories that are no arms, until the block ends; then this user owns the files."""
        try:
            started = nodes.start(
                on, settings, session=self._session, image=self.image(), repository=repository
            )
            self._nodes.update({node.arm: node for node in started})
            yield started
            self.stop_nodes(tuple(node.arm for node in started))
        except BaseException:
            self.remove_nodes()
            raise
        finally:
            for data in (mount / "elasticsearch" for mount in (*(each.mount for each in on), *linked)):
                if data.is_dir():
                    give_tree(data, os.geteuid())

    def _require_local(self, settings: nodes.NodeSettings) -> None:
        """Raise SetupError if a caller's nodes would listen beyond this machine."""
        if self.caller is not None and settings.also_at:
            raise SetupError(f"nodes at {settings.also_at}: load from elsewhere needs esrallyd of root's own")
        if self.caller is not None and settings.apart:
            raise SetupError("nodes of one arm on several hosts: their coordinator is root; run as root")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count this thread as starting nodes during the block."""
        with self._lock:
            self._require_standing()
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1

    @property
    def _caller_uid(self) -> int | None:
        return self.caller.uid if self.caller else None

    @property
    def _published(self) -> Context:
        assert self._context is not None, "its nodes, jobs and faults come after it was published"
        return self._context

    @property
    def _run(self) -> Path:
        if not self._session:
            raise SetupError("no session was begun; begin one first")
        return running.folder_of(self._session)

    def take(self, context: Context) -> None:
        """Join a running session, in another process of it."""
        self._session, self._context = context.session, context
        self._volumes = {volume.spec.name: volume for arm in context.arms for volume in arm.volumes}
        self._nodes = {node.arm: node for arm in context.arms for node in arm.nodes}

    @property
    def _is_ending(self) -> bool:
        """Whether the session is to be taken down, by any process."""
        return (self._run / ENDING).exists() or self.is_over

    def _require_standing(self) -> None:
        """Raise SetupError once the session is to be taken down: nothing may start then."""
        if self._is_ending:
            raise SetupError(f"session {self._session}: has ended; start again")

    def _bind(self, data: int, owner: int, *, read_only: bool = False) -> Volume:
        """Bind a descriptor's directory, owned by ``owner``, below the session's run directory."""
        if len(self._lent) == MAX_LENT:
            raise SetupError(
                f"{MAX_LENT} directories are lent; give them back, take fewer indices, or set "
                'design.nodes = "per-arm"'
            )
        name = f"{_LENT}{len(self._lent) + 1}"
        self._lent[name] = volumes.lend(data, self._run / name, name=name, owner=owner, read_only=read_only)
        return self._lent[name]

    def _as_it_is(self, claimed: Volume) -> Member:
        """The volume as described by ``claimed``, but with the mount, sockets, device and node known here."""
        volume = self._of(self._volumes, claimed.spec.name)
        made = replace(claimed, mount=volume.mount, control=volume.control, device=volume.device)
        return Member(volume=made, node=self._nodes.get(claimed.spec.name))

    def _of(self, what: dict[str, Any], arm: str) -> Any:  # noqa: ANN401 - a volume or a node
        if arm not in what:
            raise SetupError(f"arm {arm}: is none of this session, or has no node; it has {', '.join(what)}")
        return what[arm]

    def _require_callers(self, pid: int) -> None:
        if self.caller is None:
            return
        try:
            owner = Path(f"/proc/{pid}").stat().st_uid
        except OSError as error:
            raise SetupError(f"process {pid}: is gone; start again") from error
        if owner != self.caller.uid:
            raise SetupError(f"process {pid}: is another user's; name one of your own")

    def _safe(self, spec: VolumeSpec) -> VolumeSpec:
        """The spec with its mount resolved, if nobody but root can exchange any part of the path.

        A plain directory must also be writable for the caller; a mount was meant for volumes.
        """
        if self.caller is None or spec.mount is None:
            return spec
        try:
            mount = spec.mount.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise PlanError(f"arm {spec.name}: {spec.mount} does not exist; mount it there first") from error
        require_unchangeable(mount, name=f"arm {spec.name}: ")
        if spec.backend is Backend.DIRECTORY and not self.caller.may_write(mount):
            raise SetupError(
                f"arm {spec.name}: user {self.caller.name} may not write to {mount}; name a directory like"
                " /tmp, or leave mount out"
            )
        return replace(spec, mount=mount)

    def _snapshots(self) -> Path:
        """A directory on no arm's volume that all arms' clusters see, on this user's disk, which has room."""
        with self._lock:
            if _SNAPSHOTS not in self._volumes:
                home().mkdir(parents=True, exist_ok=True)
                self._attach_directory(_SNAPSHOTS, backing=home())
            return nodes.prepare_data_dir(self._volumes[_SNAPSHOTS])

    def _attach_directory(self, name: str, backing: Path | None = None) -> Volume:
        self._require_standing()
        spec = VolumeSpec(name=name, type="directory", size_bytes=0)
        self._volumes[name] = volumes.attach(spec, self._run / name, backing=backing)
        return self._volumes[name]


def empty_steady_caches(plan: Plan, started: Iterable[Node], evict: Callable[[str], object]) -> None:
    """Evict the files of started nodes for steady caches: memory limits do not count pages left by others."""
    if plan.cache.mode == "steady":
        for node in started:
            evict(node.arm)
