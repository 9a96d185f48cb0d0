"""A user without rights, and a Python with the pack that this user may run."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
ROOT = Path(__file__).parents[2]
PACKAGES = next(Path(path) for path in sys.path if path.endswith("site-packages"))


def as_user(uid: int, work: Callable[[], str]) -> str:
    """What ``work`` gives, done in a process of that user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(write, work().encode()[:60_000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


@contextmanager
def environment() -> Iterator[Path]:
    """A folder with ``bin/esrally`` and ``bin/esrally-ebs`` for all users, and ``home``, which is nobody's.

    The tests' own environment may lie where only root may look.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")
    if python is None:
        pytest.skip(f"no python{version} that other users may run")
    folder = Path(tempfile.mkdtemp(prefix="ebs-shared-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        site = folder / "lib" / f"python{version}" / "site-packages"
        (site / "shared.pth").write_text(f"{ROOT}\nimport site; site.addsitedir({str(PACKAGES)!r})\n")
        for name, module in (("esrally", "esrally.rally"), ("esrally-ebs", "esrally_ebs.__main__")):
            script = folder / "bin" / name
            script.write_text(
                f"#!{folder}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
            )
            script.chmod(0o755)
        (folder / "home").mkdir()
        os.chown(folder / "home", NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder)


def by_sudo(folder: Path, run: Path) -> dict[str, str]:
    """The variables of a command that nobody calls by sudo."""
    return {
        "PATH": f"{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SUDO_UID": str(NOBODY),
        "SUDO_GID": str(NOBODY),
        "HOME": "/root",
        "RALLY_HOME": str(folder / "home"),
        "ESRALLY_EBS_HOME": str(folder / "home" / "ebs"),
        "ESRALLY_EBS_RUN": str(run),
    }
