"""`make setup` by a user with sudo, where systemd starts Docker; pip has its packages."""

import logging
from pathlib import Path

from virtual_machine import VirtualMachine

_SETUP_S = 600.0
_ENGINE = "export ES_IMAGE=guest/elasticsearch; "  # laid there by build.sh, as no registry is in reach
# without its stamp pip looks at every package again
_SETUP = "make setup && rm .venv/stamp && make setup && systemctl is-active docker"


def test_set_up(tmp_path: Path) -> None:
    machine = VirtualMachine(tmp_path)
    with machine.booted(_ENGINE + _SETUP):
        output = machine.wait(_SETUP_S)
    logging.getLogger(__name__).info(output)
    steps = ("engine: started by systemd", "venv: up to date", "packages in .venv", "active\n")
    assert [step for step in steps if step not in output] == []
    assert output.count("set-up is complete") == 2
