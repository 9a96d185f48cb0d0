"""The one door to this computer: processes, the clock, disks and mounts, what /proc says."""
