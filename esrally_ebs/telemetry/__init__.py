"""What devices, page cache and limiters do during the race: once a second, and around each request."""
