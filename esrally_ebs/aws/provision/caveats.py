"""What must be known of an arm on AWS before its figures are believed: one line each, for people."""

from esrally_ebs.model import VolumeSpec

_EFS = (
    "an NFS file system: Elasticsearch is not supported on it, and a request pays the network even when warm",
    "read ahead is 15,360 KiB by Amazon's own rule for NFS, of a block device 128 KiB: cold reads are larger",
    "what is not elastic lives on burst credits or a bought rate; elastic is billed by what is moved",
)
_LOCAL = (
    "disks of the instance: all data are lost when it stops, hibernates, ends or changes its type",
    "writes get slower as a disk fills; what is measured on an empty one does not last",
)
_STRIPE = (
    "a stripe loses everything with any one of its volumes",
    "limits add up only to the instance's own; a small sequential read is on one volume alone",
)
_SNAPSHOT = "made from a snapshot: blocks that were not read yet come slowly; leave aws.initialise on"


def caveats(spec: VolumeSpec) -> tuple[str, ...]:
    """The lines that apply to an arm that is made on AWS; none for others."""
    if spec.aws is None:
        return ()
    of_type = {"efs": _EFS, "instance-store": _LOCAL}.get(spec.type, ())
    striped = _STRIPE if spec.stripes > 1 else ()
    is_lazy = spec.aws.snapshot is not None and not spec.aws.initialise and spec.type not in _UNSNAPPED
    return tuple(
        f"arm {spec.name}: {text}" for text in (*of_type, *striped, *([_SNAPSHOT] if is_lazy else []))
    )


_UNSNAPPED = ("efs", "instance-store")
