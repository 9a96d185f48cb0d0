"""What the documents promise is what the code has: commands, keys of a plan, exit codes, variables, files."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from typer.main import get_command

from esrally_ebs import errors
from esrally_ebs.cli import app
from esrally_ebs.plan import Plan, load_plan

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PLANS = (ROOT / "docs" / "plans.md").read_text()


def commands(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:  # noqa: ANN401 - click's own types differ by version
    """Every command by the words that call it, groups opened."""
    below = getattr(command, "commands", None)
    if not below:
        return {" ".join(path): command}
    return {
        words: leaf for name, sub in below.items() for words, leaf in commands(sub, (*path, name)).items()
    }


COMMANDS = commands(get_command(app))


def test_the_commands_are_those_of_the_contract() -> None:
    promised = {"doctor", "volumes up", "volumes list", "volumes down", "run", "sessions", "report"}
    assert promised | {"corpus generate", "clean"} <= COMMANDS.keys()


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_and_stands_in_the_readme(words: str) -> None:
    assert COMMANDS[words].help
    assert f"`esrally-ebs {words}" in README


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_has_help(words: str) -> None:
    options = [param for param in COMMANDS[words].params if param.param_type_name == "option"]
    assert [option.name for option in options if not option.help] == []


def sections() -> dict[str, type[Any]]:
    """Heading in docs/plans.md -> the model of that part of a plan."""
    found: dict[str, type[Any]] = {"Top level": Plan}
    for name, key in Plan.model_fields.items():
        models = [part for part in _parts(key.annotation) if hasattr(part, "model_fields")]
        if models:
            listed = get_origin(key.annotation) is tuple
            found[f"`[[{name}]]`" if listed else f"`[{name}]`"] = models[0]
    return found


def _parts(annotation: Any) -> list[Any]:  # noqa: ANN401
    return [annotation, *(inner for part in get_args(annotation) for inner in _parts(part))]


def documented(heading: str) -> dict[str, str]:
    """Key -> its row, of one table of docs/plans.md."""
    text = PLANS.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}


@pytest.mark.parametrize("heading", sections())
def test_every_key_of_a_plan_is_documented_and_no_other(heading: str) -> None:
    assert list(documented(heading)) == list(sections()[heading].model_fields)


@pytest.mark.parametrize("heading", sections())
def test_the_words_that_a_key_allows_are_documented(heading: str) -> None:
    for name, key in sections()[heading].model_fields.items():
        for part in _parts(key.annotation):
            if get_origin(part) is Literal:
                assert not [word for word in get_args(part) if f'`"{word}"`' not in documented(heading)[name]]


@pytest.mark.parametrize("heading", sections())
def test_plain_defaults_are_documented(heading: str) -> None:
    for name, key in sections()[heading].model_fields.items():
        default = documented(heading)[name].split(" | ")[2]
        if key.is_required():
            assert default == "required"
        elif isinstance(key.default, bool):
            assert default == f"`{str(key.default).lower()}`"
        elif isinstance(key.default, str):
            assert default == f'`"{key.default}"`'
        elif isinstance(key.default, int | float) and name not in {"size", "chunk"}:  # shown with a unit
            assert float(default) == key.default


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines").glob("*.toml")), ids=lambda path: path.stem)
def test_every_plan_that_ships_is_valid(path: Path) -> None:
    assert load_plan(path).name == path.stem


def test_every_exit_code_stands_in_the_readme() -> None:
    codes = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and hasattr(kind, "exit_code")
    }
    assert not [code for code in codes if not re.search(rf"^\| {code} \|", README, re.MULTILINE)]


def test_every_variable_of_the_pack_stands_in_the_readme() -> None:
    text = "".join(path.read_text() for path in (ROOT / "esrally_ebs").rglob("*.py"))
    used = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", text)) - {"PATH", "HOME"}
    assert not [name for name in used if f"`{name}`" not in README]


@pytest.mark.parametrize("name", ["README.md", "docs/plans.md"])
def test_every_file_that_a_document_names_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)]+)\)", text)
    paths = re.findall(r"`((?:compose|docs|pipelines|scripts|tracks)/[\w./-]*)`", text)
    assert not [path for path in (*links, *paths) if not (ROOT / path.split("#")[0]).exists()]


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"`make ([a-z-]+)", README))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets <= made


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_valid_and_executable_unless_sourced(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK) is (script.name != "common.sh")
