"""Rally loads this file; all it does is hand Rally's registry to the pack, with the track's own plan."""

from functools import partial

from esrally_ebs.rally import register as _register

register = partial(_register, plan="minutes-to-green")  # Rally calls track.register(registry)
