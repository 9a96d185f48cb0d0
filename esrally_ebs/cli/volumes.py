"""``esrally-ebs volumes``: the arms of a plan by hand, attached, looked at, changed and detached."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from esrally_ebs.aws.identity import Identity
from esrally_ebs.cli.output import Json, PlanName, Settings, complain, console, new_table, overrides_of, put
from esrally_ebs.errors import PlanError
from esrally_ebs.model import MAX_TIME_SCALE, Volume
from esrally_ebs.session import manual
from esrally_ebs.units import format_bytes, number_of
from esrally_ebs.volumes.emulated.control import LimiterState

ArmName = Annotated[str, typer.Argument(metavar="ARM", help="Name or mount of an attached emulated arm.")]
Credits = Annotated[
    float | None,
    typer.Option("--credits", min=0, max=1, help="Fill the burst credits to this share of their bucket."),
]
TimeScale = Annotated[
    float | None,
    typer.Option(
        min=1, max=MAX_TIME_SCALE, help="Let buckets empty and fill this many times as fast as real ones."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print each call of AWS and the price of an hour; change nothing.")
]
app = typer.Typer(help="Attach, show and detach the arms of a plan by hand.", no_args_is_help=True)


@app.command("up")
def volumes_up(plan: PlanName, settings: Settings = None, dry_run: DryRun = False) -> None:
    """Attach and mount every arm of a plan; they stay until 'volumes down'."""
    overrides = overrides_of(settings)
    if dry_run:
        put("\n".join(manual.dry_run(plan, overrides)))
        return
    _print_volumes(manual.up(plan, overrides, say=put))


@app.command("list")
def volumes_list(as_json: Json = False) -> None:
    """Show the arms attached by hand or by a running session, and every mount that could be one."""
    attached: list[Volume] = []
    try:
        attached = manual.attached()
    except PermissionError as error:  # anybody may still look at mounts
        complain(f"{error.filename}: only its owner sees which arms are attached; run as root for those")
    if lost := [volume.spec.name for volume in attached if not manual.is_mounted(volume)]:
        complain(
            f"{', '.join(lost)}: not mounted any more, as after a reboot; 'esrally-ebs volumes down' (of arms"
            " attached by hand) and 'esrally-ebs clean' (of a session's) remove what is left"
        )
        attached = [volume for volume in attached if manual.is_mounted(volume)]
    free = manual.mounts(volume.mount for volume in attached)
    if as_json:
        put(json.dumps([*map(_attached, attached), *map(_mount, free)], indent=2))
        return
    _print_volumes(attached)
    _print_mounts(free)


@app.command("down")
def volumes_down(
    plan: Annotated[str | None, typer.Argument(metavar="[PLAN]", help="Only the arms of this plan.")] = None,
) -> None:
    """Detach the arms that 'volumes up' attached; the data on emulated ones are lost."""
    names = manual.down(plan)
    for name in names:
        put(f"detached {name}")
    if not names:
        put("no arm is attached by hand" if plan is None else f"no arm of {plan} is attached by hand")


@app.command("modify")
def volumes_modify(
    arm: Annotated[str, typer.Argument(metavar="ARM", help="An attached arm's name, or a volume: vol-...")],
    type_: Annotated[str | None, typer.Option("--type", help="The new type, such as gp3.")] = None,
    size: Annotated[str | None, typer.Option("--size", help="The new size, such as 200GiB.")] = None,
    iops: Annotated[
        int | None, typer.Option("--iops", min=1, help="Provisioned operations a second.")
    ] = None,
    throughput: Annotated[str | None, typer.Option("--throughput", help="Such as 250MiB/s.")] = None,
    not_ours: Annotated[
        bool, typer.Option("--not-ours", help="Also change a volume that this pack did not make.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the change is completed.")] = True,
) -> None:
    """Change an EBS volume in place, also while it is in use, and follow the change."""
    wanted = manual.change(type_=type_, size=size, iops=iops, throughput=throughput)
    manual.modify(arm, wanted, not_ours=not_ours, wait=wait, say=put)


@app.command("show")
def volumes_show(arm: ArmName, as_json: Json = False) -> None:
    """Show bucket levels and credits of an emulated arm, and how long I/Os waited for each limit."""
    _print_limiters(arm, manual.limiters(arm), as_json=as_json)


@app.command("set")
def volumes_set(
    arm: ArmName,
    credits_: Credits = None,
    drain: Annotated[bool, typer.Option("--drain", help="Empty all buckets but the credits.")] = False,
    refill: Annotated[bool, typer.Option("--refill", help="Fill all buckets but the credits.")] = False,
    time_scale: TimeScale = None,
    as_json: Json = False,
) -> None:
    """Change what an emulated arm's limiters hold, while it is used, and show it."""
    given = {"credits": credits_, "drain": drain, "refill": refill, "time_scale": time_scale}
    settings = {key: value for key, value in given.items() if value is not None and value is not False}
    if not settings or (drain and refill):
        raise PlanError(f"arm {arm}: give --credits, --time-scale, and one of --drain and --refill")
    _print_limiters(arm, manual.set_limiters(arm, **settings), as_json=as_json)


def _print_limiters(arm: str, state: LimiterState, *, as_json: bool) -> None:
    if as_json:
        put(json.dumps(state.to_json(), indent=2))
        return
    type_, limits = manual.limits_of(arm)
    rows = new_table("limit", "tokens", "of", "full", "refilled by", "I/Os waited for it")
    for name, level in state.levels.items():
        capacity, limit = state.capacities[name], limits[name]
        amount = format_bytes if limit.counts == "bytes" else "{:,.0f} I/Os".format
        rate = f"{amount(limit.rate)}/s"
        share = f"{level / capacity:.1%}"
        rows.add_row(name, amount(level), amount(capacity), share, rate, f"{state.waited_s[name]:,.3f} s")
    console().print(rows)
    unlimited = "; unlimited now" if state.unlimited else ""
    put(
        f"{arm} ({type_}, emulated): {number_of(state.reads, 'read')} and {number_of(state.writes, 'write')},"
        f" {state.in_flight} in flight, {number_of(state.errors, 'error')};"
        f" time scale {state.time_scale:g}{unlimited}"
    )


def _attached(volume: Volume) -> dict[str, Any]:
    return {
        "attached": True,
        "name": volume.spec.name,
        "type": volume.spec.type,
        "kind": volume.kind,
        "mount": str(volume.mount),
        "device": volume.device,
        "identity": volume.identity,
    }


def _mount(identity: Identity) -> dict[str, Any]:
    return {
        "attached": False,
        "kind": identity.kind,
        "mount": str(identity.mount_point),
        "device": identity.stack.device,
        "identity": identity.name,
        "volumes": list(identity.volume_ids),
        "layers": list(identity.stack.layers),
        "filesystem": identity.stack.mount.filesystem,
        "root_device": identity.root,
    }


def _print_mounts(identities: Sequence[Identity]) -> None:
    rows = new_table("mount that could be an arm", "kind", "file system", "device", "what it is", "")
    for each in identities:
        stack = each.stack
        device = " on ".join(filter(None, [*stack.layers, *(disk.name for disk in stack.disks[:1])]))
        note = "the system's own disk" if each.root else ""
        rows.add_row(str(each.mount_point), each.kind, stack.mount.filesystem, device, each.name, note)
    console().print(rows)


def _print_volumes(volumes: Sequence[Volume]) -> None:
    rows = new_table("arm", "type", "kind", "size", "device", "mount")
    for volume in volumes:
        spec, size = volume.spec, format_bytes(volume.spec.size_bytes)
        if spec.stripes > 1:
            size = f"{spec.stripes} x {size}"
        rows.add_row(spec.name, spec.type, volume.kind, size, volume.device or "", str(volume.mount))
    console().print(rows)
