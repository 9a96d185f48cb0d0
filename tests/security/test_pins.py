"""What set-up fetches is the file that was meant, where its source gives one that stays."""

import hashlib
import subprocess
from pathlib import Path

IMAGE = Path(__file__).parents[2] / "compose" / "image"
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
