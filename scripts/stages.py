"""How long each stage of the latest session took: one line per stage, from its event log."""

import sys

from esrally_ebs.machine.resources import home
from esrally_ebs.store import find_session, load_session

for event in load_session(find_session(home(), "latest")).events:
    if event.kind == "stage":
        sys.stdout.write(f"    race, {event.fields['name']}: {event.fields['seconds']:.0f} s\n")
