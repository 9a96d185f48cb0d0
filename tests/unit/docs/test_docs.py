"""What the documents promise is what the code has: commands, keys of a plan, exit codes, variables, files."""

import configparser
import os
import re
import subprocess
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic.fields import FieldInfo
from typer.main import get_command

from esrally_ebs import errors
from esrally_ebs.cli import app_of
from esrally_ebs.machine import processes
from esrally_ebs.plan import Plan, load_plan, parse_plan
from esrally_ebs.plan.plan import keys_by_table

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PAGES = {page.relative_to(ROOT).as_posix(): page.read_text() for page in (ROOT / "docs").rglob("*.md")}
COMMANDS_PAGE, REFERENCE = PAGES["docs/commands.md"], PAGES["docs/reference.md"]
DOCUMENTS = {
    **PAGES,
    **{name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")},
    **{page.relative_to(ROOT).as_posix(): page.read_text() for page in (ROOT / "tracks").rglob("*.md")},
}
WORDS_OF_FIVE_MINUTES = 900


def commands(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:  # noqa: ANN401 - click's own types differ by version
    """Every command by the words that call it, groups opened."""
    below = getattr(command, "commands", None)
    if not below:
        return {" ".join(path): command}
    return {
        words: leaf for name, sub in below.items() for words, leaf in commands(sub, (*path, name)).items()
    }


COMMANDS = commands(get_command(app_of()))


def test_the_commands_are_those_of_the_contract() -> None:
    promised = {"doctor", "volumes up", "volumes list", "volumes down", "run", "sessions", "report"}
    assert promised | {"corpus generate", "clean"} <= COMMANDS.keys()


def documented_options(words: str) -> set[str]:
    """The options that the section of a command in docs/commands.md lists."""
    section = re.search(rf"^### `esrally-ebs {words}\b[^\n]*\n(.*?)(?=^##|\Z)", COMMANDS_PAGE, re.M | re.S)
    assert section, f"docs/commands.md has no section on {words}"
    rows = re.findall(r"^\| (`--.+?) \|", section[1], re.MULTILINE)
    return {option for row in rows for option in re.findall(r"`(--[a-z-]+)", row)}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_option_is_documented_and_no_other(words: str) -> None:
    options = [param for param in COMMANDS[words].params if param.param_type_name == "option"]
    assert documented_options(words) == {
        name for option in options for name in (*option.opts, *option.secondary_opts)
    }


def test_no_other_command_is_documented() -> None:
    headings = re.findall(
        r"^### `esrally-ebs ([a-z -]+?)(?: [A-Z.\[\] ]+)*(?:\.csv\.\.\.)?`$", COMMANDS_PAGE, re.M
    )
    assert sorted(headings) == sorted(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_option_has_help(words: str) -> None:
    assert COMMANDS[words].help
    options = [param for param in COMMANDS[words].params if param.param_type_name == "option"]
    assert [option.name for option in options if not option.help] == []


def sections() -> dict[str, type[Any]]:
    """Heading in docs/plans.md -> the model of that part of a plan."""
    headings: dict[str, type[Any]] = {"Top level": Plan}
    for name, key in Plan.model_fields.items():
        models = [
            part for part in _parts(key.annotation) if hasattr(part, "model_fields") or is_dataclass(part)
        ]
        if models:
            listed = get_origin(key.annotation) is tuple
            headings[f"`[[{name}]]`" if listed else f"`[{name}]`"] = models[0]
    return headings


def fields_of(heading: str) -> dict[str, Any]:
    """Key -> pydantic's description of it."""
    table = sections()[heading]
    if not is_dataclass(table):
        return dict(table.model_fields)
    hints = get_type_hints(table, include_extras=True)
    described = (FieldInfo.from_annotated_attribute(hints[each.name], each.default) for each in fields(table))
    named = {info.alias or each.name: info for each, info in zip(fields(table), described, strict=True)}
    return {key: named[key] for key in keys_by_table()[heading.strip("`[]")]}


def _parts(annotation: Any) -> list[Any]:  # noqa: ANN401
    return [annotation, *(inner for part in get_args(annotation) for inner in _parts(part))]


def documented(heading: str) -> dict[str, str]:
    """Key -> its row, of one table of docs/plans.md."""
    text = PAGES["docs/plans.md"].split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}


@pytest.mark.parametrize("heading", sections())
def test_every_key_of_a_plan_is_documented_and_no_other(heading: str) -> None:
    assert list(documented(heading)) == list(fields_of(heading))


@pytest.mark.parametrize("heading", sections())
def test_the_words_that_a_key_allows_are_documented(heading: str) -> None:
    for name, key in fields_of(heading).items():
        for part in _parts(key.annotation):
            if get_origin(part) is Literal:
                assert not [word for word in get_args(part) if f'`"{word}"`' not in documented(heading)[name]]


@pytest.mark.parametrize("heading", sections())
def test_plain_defaults_are_documented(heading: str) -> None:
    for name, key in fields_of(heading).items():
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


def test_the_plan_that_the_document_shows_is_valid() -> None:
    text = PAGES["docs/plans.md"]
    (shown,) = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    plan = parse_plan(shown, "docs/plans.md")
    assert f"run {plan.name}.toml" in text
    assert plan.race is not None


def test_every_exit_code_is_documented() -> None:
    codes = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and hasattr(kind, "exit_code")
    }
    assert not [code for code in codes if not re.search(rf"^\| {code} \|", REFERENCE, re.MULTILINE)]


def test_every_variable_is_documented() -> None:
    text = "".join(path.read_text() for path in (ROOT / "esrally_ebs").rglob("*.py"))
    used = {
        name
        for name in re.findall(r"\"([A-Z_]+)\"", text)
        if name.startswith(("ESRALLY_EBS_", "RALLY_REPORTING_"))
    }
    used |= set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", text)) - {"PATH", "HOME"}
    assert not [name for name in used if f"`{name}`" not in REFERENCE]


def test_make_passes_on_every_variable_of_ours_to_what_it_calls_by_sudo() -> None:
    named = set(re.findall(r"`((?:ESRALLY_EBS|RALLY)_[A-Z_]+)`", REFERENCE))
    given = dict.fromkeys(named, "x") | {"PATH": os.environ["PATH"]}
    words = ["bash", "-c", 'source scripts/common.sh; echo "$KEPT_VARIABLES"']
    ended = subprocess.run(words, cwd=ROOT, env=given, capture_output=True, text=True, check=True)
    assert named - set(ended.stdout.strip().split(",")) == set()


def test_scripts_look_for_tools_where_the_pack_does() -> None:
    words = ["/bin/bash", "-c", 'source scripts/common.sh; echo "$PATH"']
    ended = subprocess.run(
        words, cwd=ROOT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == f"/usr/bin:/bin:{processes._OFTEN_LEFT_OUT}"


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(README.split()) <= WORDS_OF_FIVE_MINUTES


@pytest.mark.parametrize("name", PAGES)
def test_a_document_says_first_for_whom_it_is(name: str) -> None:
    lines = [line for line in PAGES[name].splitlines() if line]
    assert lines[0].startswith("# ")
    assert lines[1].startswith("For ")


@pytest.mark.parametrize("name", [name for name in PAGES if "/internals/" not in name])
def test_every_document_is_reached_from_the_readme(name: str) -> None:
    assert f"]({name})" in README


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_exists(name: str) -> None:
    text = DOCUMENTS[name]
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    paths = re.findall(
        r"`((?:benchmarks|compose|docs|esrally_ebs|pipelines|scripts|tests|tracks)/[\w./-]*)`", text
    )
    assert not [link for link in links if not ((ROOT / name).parent / link).exists()]
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_heading_that_a_document_leads_to_exists(name: str) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", DOCUMENTS[name]):
        text = ((ROOT / name).parent / path).read_text() if path else DOCUMENTS[name]
        headings = [
            re.sub(r"[^\w -]", "", line.lower()) for line in re.findall("^#+ (.+)$", text, re.MULTILINE)
        ]
        assert anchor in [heading.replace(" ", "-") for heading in headings]


def test_every_benchmark_is_described() -> None:
    scripts = {
        path.name for path in (ROOT / "benchmarks").glob("*.py") if not path.name.startswith("published_")
    }
    assert not [name for name in scripts if f"`{name}" not in DOCUMENTS["benchmarks/README.md"]]


def test_every_room_is_described() -> None:
    rooms = {path.parent.name for path in (ROOT / "esrally_ebs").glob("*/__init__.py")}
    assert not [room for room in rooms if f"| `{room}`" not in DOCUMENTS["CONTRIBUTING.md"]]


def test_rooms_are_described_on_the_layers_that_are_enforced() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    enforced = config["importlinter:contract:layers"]["layers"].replace("__main__ :", "").split("\n")[1:]
    rows = re.findall(r"^\| (\d*) ?\| (`[a-z`, ]+`)(?: \\\|)? \|", DOCUMENTS["CONTRIBUTING.md"], re.MULTILINE)
    described: list[list[str]] = [[]]
    for layer, rooms in rows:
        if layer:
            described.append([])
        described[-1] += re.findall("[a-z]+", rooms)
    assert described[1:] == [re.findall("[a-z]+", line) for line in enforced]


def test_every_make_target_that_a_document_names_exists_and_is_described() -> None:
    named = {target for text in DOCUMENTS.values() for target in re.findall(r"`make ([a-z-]+)", text)}
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named - made == set()
    assert not [target for target in made - {"help"} if f"`make {target}`" not in PAGES["docs/install.md"]]


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_valid_and_executable_unless_sourced(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK) is (script.name != "common.sh")
