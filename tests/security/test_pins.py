"""What set-up fetches is the file that was meant, where its source gives one that stays."""

import hashlib
import re
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "compose" / "image"
CHECK = """
say() { echo "$*"; }; die() { echo "$*"; exit 3; }
eval "$(sed -n '/^check_distribution/,/^}/p' "$0")"
here=$1 zip=$2
check_distribution
"""


def check(folder: Path, zip_: Path) -> tuple[int, str]:
    words = ["bash", "-c", CHECK, str(IMAGE / "build.sh"), str(folder), str(zip_)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def test_a_distribution_other_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    zip_ = tmp_path / "elasticsearch-8.8.2.zip"
    zip_.write_bytes(b"PK")
    (tmp_path / "checksums").write_text(f"{hashlib.sha512(b'PK').hexdigest()}  {zip_.name}\n")
    assert check(tmp_path, zip_) == (0, "")
    assert check(IMAGE, zip_)[0] == 3
    assert "is not the file whose SHA-512 is in" in check(IMAGE, zip_)[1]
    other = zip_.rename(tmp_path / "elasticsearch-8.9.0.zip")
    assert check(IMAGE, other) == (0, f"no checksum of {other.name} in {IMAGE}/checksums: taken as it came\n")


def test_the_version_that_set_up_builds_is_pinned() -> None:
    line = next(line for line in (IMAGE / "build.sh").read_text().splitlines() if line.startswith("version="))
    version = line.partition(":-")[2].rstrip("}")
    assert f"  elasticsearch-{version}.zip" in (IMAGE / "checksums").read_text()


def locked() -> Iterator[tuple[Requirement, list[str]]]:
    """Each package of requirements.txt with its hashes, whatever Python it is for."""
    text = (ROOT / "requirements.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if not line.startswith("#"):
            words, *hashes = line.split(" --hash=")
            yield Requirement(words), hashes


def test_every_package_that_set_up_installs_has_a_version_and_hashes() -> None:
    for package, hashes in locked():
        assert re.fullmatch(r"==[^*,]+", str(package.specifier)), package
        assert hashes, package
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for each in hashes), package


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_what_is_locked_fits_the_requirements_of_the_pack(python: str) -> None:
    where = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    versions = {
        package.name: str(package.specifier).removeprefix("==")
        for package, _ in locked()
        if package.marker is None or package.marker.evaluate(where)
    }
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    wanted = [
        settings["options"]["install_requires"],
        *settings["options.extras_require"].values(),
        "pip\nsetuptools",
    ]
    lines = [
        line for text in wanted for line in text.splitlines() if line and not line.startswith(("#", "%"))
    ]
    assert len(lines) > 20
    for line in lines:
        requirement = Requirement(line)
        assert requirement.specifier.contains(versions[requirement.name]), f"{line}: run make lock"
