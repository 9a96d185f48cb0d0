"""Emulated volumes: a FUSE daemon that limits a loop device like a volume of the catalog."""
