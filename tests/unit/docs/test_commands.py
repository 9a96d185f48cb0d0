"""Every command of ours that a document shows is one that exists, with options that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest
from typer.main import get_command

from esrally_ebs.cli import app_of
from esrally_ebs.machine.resources import plan_path
from esrally_ebs.plan import load_plan

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> list[list[str]]:
    """The words of every ``$ esrally-ebs ...`` line, continued lines joined, without comment."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^\$ (?:\S*/)?esrally-ebs (.+)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


COMMANDS = {f"{page.name}: {shlex.join(words)}": words for page in PAGES for words in shown(page)}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_that_a_document_shows_is_understood(words: list[str]) -> None:
    command, rest, path = get_command(app_of()), list(words), "esrally-ebs"
    while hasattr(command, "commands"):
        path = f"{path} {rest[0]}"
        assert rest[0] in command.commands, f"no command {path}"
        command = command.commands[rest.pop(0)]
    try:
        command.make_context(path, rest)
    except click.exceptions.Exit:
        return  # --help


def test_help_names_the_default_of_burst_credits_that_the_document_names() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    for word in ("advise", "usage"):
        (row,) = re.findall(r"^\| `--credits .*\| (.+) \|$", text.split(f"esrally-ebs {word} ")[1], re.M)[:1]
        options = get_command(app_of()).commands[word].params
        (option,) = [option for option in options if option.name == "credits_"]
        assert option.help.endswith(f"default: {row.replace('`', chr(39))}.")


def test_a_command_that_a_document_shows_can_be_pasted_into_any_shell() -> None:
    text = "\n".join(page.read_text() for page in [*PAGES, *(ROOT / "tracks").rglob("*.md")])
    lines = re.findall(r"^\$ (.+)$", text.replace("\\\n", " "), re.MULTILINE)
    bare = {line: re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line) for line in lines}
    # zsh runs no command with a pattern that fits no file; sudo looks for programs on a PATH of its own
    assert not [line for line, words in bare.items() if re.search(r"[][{}*?;<>]|sudo esrally", words)]


def test_every_plan_that_a_command_of_the_runbook_names_is_there() -> None:
    words = [word for words in shown(ROOT / "docs" / "runbooks" / "gp2-to-gp3.md") for word in words]
    named = {word for word in words if word.startswith("gp2-")}
    assert (
        {load_plan(plan_path(name)).name for name in named} == named == {"gp2-vs-gp3", "gp2-to-gp3-in-place"}
    )


def test_the_in_place_plan_of_the_runbook_changes_what_the_comparison_compares() -> None:
    compared, changed = load_plan(plan_path("gp2-vs-gp3")), load_plan(plan_path("gp2-to-gp3-in-place"))
    before, after = compared.arm
    assert changed.modify is not None
    assert changed.arm[0].size_bytes == before.size_bytes
    assert (changed.modify.iops, changed.modify.throughput) == (after.iops, after.throughput_bytes_per_s)
