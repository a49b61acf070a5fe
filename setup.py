# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Build step of the fork: metadata lives in pyproject.toml, only the overlay's files need code."""

import shutil
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py as _build_py


class build_py(_build_py):  # setuptools looks commands up by this name
    """Add the `.pth` (every install) and the overlay folders (regular install only) to what is being built."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            # An editable wheel holds no packages, so the .pth goes straight into the wheel being assembled.
            target = Path(self.get_finalized_command("install").install_lib)
        else:
            target = Path(self.build_lib)
            # Beside upstream, never into site-packages/verl: that would overwrite upstream's files.
            overlay = target / "_verl_overlay" / "verl"
            shutil.rmtree(overlay, ignore_errors=True)  # a stale build/ would ship files deleted since
            shutil.copytree("verl", overlay, ignore=shutil.ignore_patterns("__pycache__"))
        self.copy_file("overlay/verl_overlay.pth", str(target))


setup(
    packages=find_namespace_packages("overlay"),
    package_dir={"": "overlay"},
    cmdclass={"build_py": build_py},
)
