"""Labels say nothing by themselves: an image gives its own to every container that is made of it."""

from pathlib import Path

import pytest
from race_under_test import docker

from esrally_ebs import node
from esrally_ebs.cli import main
from esrally_ebs.model import LOCAL_IMAGE
from esrally_ebs.node import engine
from esrally_ebs.session import clean

pytestmark = [pytest.mark.system, pytest.mark.beside]

PROJECT = "com.docker.compose.project"


@pytest.mark.parametrize("project", [None, "ebs-node", "as computed"])
@pytest.mark.parametrize("session", ["VICTIM", "..", "by-hand", "nightly"])
def test_a_container_that_calls_itself_ours_touches_no_file_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: str, project: str | None
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis").touch()
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    name = str(victim) if session == "VICTIM" else session
    labels = {"esrally-ebs.session": name, "esrally-ebs.run": str(tmp_path / "run"), "esrally-ebs.arm": "a"}
    if project:
        labels[PROJECT] = engine.project("nightly", "a") if project == "as computed" else project
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    container = docker("create", *words, LOCAL_IMAGE).strip()
    try:
        assert node.leftovers() == []
        assert main(["clean"]) == 0
        assert (victim / "thesis").exists()
        assert docker("ps", "-aq", "--no-trunc", "--filter", f"id={container}").strip() == container
    finally:
        docker("rm", "-f", container)


def test_what_compose_made_for_a_session_that_is_gone_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    labels = {
        "esrally-ebs.session": "nightly",
        "esrally-ebs.run": str(tmp_path / "run"),
        "esrally-ebs.arm": "a",
        PROJECT: engine.project("nightly", "a"),
    }
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    name = f"{engine.project('nightly', 'a')}-node-1"  # as Compose names it
    container = docker("create", "--name", name, *words, LOCAL_IMAGE).strip()
    try:
        assert list(clean.clean_nodes()) == [("nightly", [])]
        assert not docker("ps", "-aq", "--filter", f"id={container}").strip()
    except AssertionError:
        docker("rm", "-f", container)
        raise
