"""Rally loads this file; all it does is hand Rally's registry to the pack."""

from esrally_ebs.rally import register  # noqa: F401 - Rally calls track.register(registry)
