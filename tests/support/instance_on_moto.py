"""An EC2 instance on moto's server, with a volume of somebody else's attached to it."""

from esrally_ebs.aws.clients import Aws


def make_instance(api: Aws, *, size_gib: int) -> tuple[str, str]:
    """The ids of a new instance and of the gp2 volume that it has as /dev/sdf."""
    image = api.call("ec2", "RegisterImage", Name="image", RootDeviceName="/dev/sda1")["ImageId"]
    made = api.call("ec2", "RunInstances", ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large")
    (described,) = made["Instances"]
    instance, zone = described["InstanceId"], described["Placement"]["AvailabilityZone"]
    volume = api.call("ec2", "CreateVolume", AvailabilityZone=zone, Size=size_gib, VolumeType="gp2")[
        "VolumeId"
    ]
    api.call("ec2", "AttachVolume", VolumeId=volume, InstanceId=instance, Device="/dev/sdf")
    return instance, volume
