"""Where the pack's files are (compose, pipelines, tracks), and where it stores its own.

A checkout has them beside the package; an installed wheel has them under ``share/esrally_ebs`` of its
environment, of the user's packages (``pip install --user``), or of /usr/local.
"""

import os
import site
import sys
import sysconfig
from pathlib import Path

from esrally_ebs.errors import PlanError, SetupError, near


def resource(relative: str) -> Path:
    """Path of one of the pack's files, such as ``compose/node.yml``. Raises SetupError if not installed."""
    prefixes = (sys.prefix, sysconfig.get_path("data"), site.getuserbase())
    for root in (Path(__file__).parents[2], *(Path(prefix, "share/esrally_ebs") for prefix in prefixes)):
        if (root / relative).exists():
            return root / relative
    raise SetupError(f"{relative}: not found beside the package; install esrally_ebs again")


def home(of: str = "~") -> Path:
    """``$ESRALLY_EBS_HOME``: sessions, datasets and corpora. Raises SetupError if home is unknown.

    ``of``: another user's home, used if no variable names one.
    """
    return _folder("ESRALLY_EBS_HOME", f"{of}/.rally/benchmarks/ebs")


def run_dir() -> Path:
    """``$ESRALLY_EBS_RUN``: everything attached or running on this machine, a folder per session."""
    return named_in_text("ESRALLY_EBS_RUN", _folder("ESRALLY_EBS_RUN", "/run/esrally-ebs"))


def named_in_text(variable: str, path: Path) -> Path:
    """The path, if records and containers can name it. Raises SetupError unless it is UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise SetupError(f"{variable}: {path} is not UTF-8; set it to a folder whose path is") from error
    return path


def sockets_wanted() -> bool:
    """Whether ``$ESRALLY_EBS_ACTORS`` asks that Rally's actors listen for other machines' actors."""
    return _actors()[0] == "sockets"


def actors_address() -> str | None:
    """The address to listen at, from ``sockets:ADDRESS``; None: all addresses."""
    how, colon, address = _actors()
    return address if how == "sockets" and colon else None


def _actors() -> tuple[str, str, str]:
    return os.environ.get("ESRALLY_EBS_ACTORS", "").partition(":")


def _folder(variable: str, otherwise: str) -> Path:
    """An absolute path, as containers and processes in other folders use it."""
    try:
        return Path(os.environ.get(variable) or otherwise).expanduser().absolute()
    except RuntimeError as error:
        raise SetupError(f"{variable}: {error}; set it to a folder") from error


def _shipped_plans() -> dict[str, Path]:
    return {path.stem: path for path in sorted(resource("pipelines").glob("*.toml"))}


def plan_path(name: str) -> Path:
    """A plan's file, given by path or by name in ``pipelines/``. Raises PlanError if it is neither."""
    if name.endswith(".toml"):
        try:
            path = Path(name).expanduser().resolve()
        except RuntimeError as error:
            raise PlanError(f"plan {name}: {error}; write the whole path") from error
        try:
            path.lstat()
        except FileNotFoundError:
            if path.stem in _shipped_plans():
                raise PlanError(
                    f"{path}: No such file; write {path.stem!r} for our plan of that name"
                ) from None
        except (OSError, ValueError):
            pass  # who reads the plan says why it cannot be read
        return path
    known = _shipped_plans()
    if name not in known:
        raise PlanError(
            f"plan {name!r}: there is none of that name; choose one of {', '.join(known)}, or give the path "
            f"of a file that ends in .toml{near(name, known)}"
        )
    return known[name]
