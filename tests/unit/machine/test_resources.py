"""Where the pack keeps its own, by the environment."""

import site
import sys
import sysconfig
from pathlib import Path

import pytest

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine import resources
from esrally_ebs.machine.resources import actors_address, home, plan_path, resource, run_dir


def test_folders_are_absolute_whatever_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("ESRALLY_EBS_HOME", "~/ebs")
    monkeypatch.setenv("ESRALLY_EBS_RUN", "run")

    assert home() == Path("/home/me/ebs")
    assert run_dir() == tmp_path / "run"


@pytest.mark.parametrize(
    ("given", "address"),
    [("sockets:10.0.0.1", "10.0.0.1"), ("sockets", None), ("queues:10.0.0.1", None), ("", None)],
)
def test_actors_listen_at_the_address_of_sockets_alone(
    monkeypatch: pytest.MonkeyPatch, given: str, address: str | None
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_ACTORS", given)
    assert actors_address() == address


def test_a_home_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", "~nobody-of-that-name/ebs")

    with pytest.raises(SetupError, match=r"^ESRALLY_EBS_HOME: .*; set it to a folder$"):
        home()


def test_a_plan_in_a_home_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^plan ~nobody-of-that-name/a\.toml: .*; write the whole path$"):
        plan_path("~nobody-of-that-name/a.toml")


@pytest.mark.parametrize("name", ["gp2-vs-gp3.toml", "pipelines/gp2-vs-gp3.toml"])
def test_a_plan_of_ours_that_is_not_here_is_named_as_it_is_to_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError, match=r"gp2-vs-gp3\.toml: No such file; write 'gp2-vs-gp3' for our plan"):
        plan_path(name)
    own = tmp_path / "gp2-vs-gp3.toml"
    own.touch()
    assert plan_path("gp2-vs-gp3.toml") == own


def test_a_plan_in_a_folder_that_may_not_be_read_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """Else ours is proposed, and raced instead of the user's."""
    (tmp_path / "file").touch()
    assert plan_path(f"{tmp_path}/file/gp2-vs-gp3.toml").name == "gp2-vs-gp3.toml"


@pytest.mark.parametrize("place", ["environment", "data", "user"])
def test_files_are_found_wherever_pip_puts_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    wanted = tmp_path / place / "share" / "esrally_ebs" / "compose" / "node.yml"
    wanted.parent.mkdir(parents=True)
    wanted.touch()
    # an installed package, with no checkout around it
    monkeypatch.setattr(
        resources, "__file__", str(tmp_path / "site-packages" / "esrally_ebs" / "machine" / "resources.py")
    )
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(sysconfig, "get_path", {"data": str(tmp_path / "data")}.__getitem__)
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path / "user"))

    assert resource("compose/node.yml") == wanted
    with pytest.raises(SetupError, match=r"^compose/metrics\.yml: not found"):
        resource("compose/metrics.yml")
