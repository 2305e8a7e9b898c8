"""Puts the one `models.toml` of the repository into the wheel; all else is in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRegistry(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "edgespec", "models.toml")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile("models.toml", target)


setup(cmdclass={"build_py": BuildWithRegistry})
