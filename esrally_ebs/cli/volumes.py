"""``esrally-ebs volumes``: the arms of a plan, attached and detached by hand."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from esrally_ebs.aws.identity import Identity
from esrally_ebs.cli import limiters
from esrally_ebs.cli.output import Json, PlanName, Settings, console, new_table, overrides_of, put
from esrally_ebs.model import Volume
from esrally_ebs.session import manual
from esrally_ebs.units import format_bytes

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
    """Show the attached arms, by hand or by a running session, and every mount that could be one."""
    attached = manual.attached()
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
    """Detach the arms that 'volumes up' attached; the data on emulated ones are gone then."""
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
    iops: Annotated[int | None, typer.Option("--iops", help="Provisioned operations a second.")] = None,
    throughput: Annotated[str | None, typer.Option("--throughput", help="Such as 250MiB/s.")] = None,
    not_ours: Annotated[
        bool, typer.Option("--not-ours", help="Also a volume that this pack has not made.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the change is completed.")] = True,
) -> None:
    """Change an EBS volume where it is, also while it is used, and follow the change."""
    wanted = manual.change(type_=type_, size=size, iops=iops, throughput=throughput)
    manual.modify(arm, wanted, not_ours=not_ours, wait=wait, say=put)


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


app.command("show")(limiters.show)
app.command("set")(limiters.change)


def _print_volumes(volumes: Sequence[Volume]) -> None:
    rows = new_table("arm", "type", "kind", "size", "device", "mount")
    for volume in volumes:
        size = format_bytes(volume.spec.size_bytes)
        rows.add_row(
            volume.spec.name, volume.spec.type, volume.kind, size, volume.device or "", str(volume.mount)
        )
    console().print(rows)
