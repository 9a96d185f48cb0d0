"""Puts ``esrally_ebs.pth`` beside the packages, also in an editable install; all else is in setup.cfg."""

import shutil
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

PTH = "esrally_ebs.pth"


class Build(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copy(PTH, self.build_lib)


class Editable(editable_wheel):
    def run(self) -> None:
        super().run()
        (wheel,) = Path(self.dist_dir).glob("*.whl")
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.write(PTH)  # pip adds it to the record of what it has installed


setup(cmdclass={"build_py": Build, "editable_wheel": Editable})
