"""A VolumeSpec in, a mounted volume out: emulated, on AWS, a mount of the user's, a directory."""
