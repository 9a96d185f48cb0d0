"""What devices, page cache and limiters do while the race runs: once a second, and around each request."""
