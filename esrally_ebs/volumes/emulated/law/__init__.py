"""How a volume limits I/O: token buckets, queue, latency. Pure; devices and virtual time share it."""
