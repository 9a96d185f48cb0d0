"""A session in, findings out: statistics, verdicts, causes. Pure."""
