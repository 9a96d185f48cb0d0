"""Pictures of a report's first screen for README and docs/reports.md, wide and as on a phone.

    python scripts/pictures.py REPORT.html [FOLDER]

Needs Chromium. Writes report.png (1280 pixels wide) and report-phone.png (390) into docs/pictures.
"""

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from chromium import chromium  # noqa: E402 - found by the line above

SIZES = {"report.png": (1280, 860), "report-phone.png": (390, 844)}


def main() -> None:
    """Open the page in each size and write its first screen."""
    page = Path(sys.argv[1]).resolve()
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "pictures"
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        for name, (width, height) in SIZES.items():
            browser.show_as(width=width, height=height)
            browser.open(page.as_uri())
            shot = browser.call("Page.captureScreenshot", format="png")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(base64.b64decode(shot["data"]))
            print(f"{folder / name}: {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
