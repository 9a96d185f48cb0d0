"""From a VolumeSpec to a mounted volume: emulated, on AWS, the user's mount, or a directory."""
