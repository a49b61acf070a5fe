# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The commands by name. Not in `__init__`: there the commands would hide their modules, which have the same names."""

from __future__ import annotations

import subprocess
import sys

import click

from verl.crosscheck.cli.clean import clean
from verl.crosscheck.cli.doctor import doctor
from verl.crosscheck.cli.report import report
from verl.crosscheck.cli.run import run
from verl.crosscheck.cli.show import show
from verl.crosscheck.cli.status import status


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(message="%(version)s", version=None, package_name="verl-crosscheck")
def main() -> None:
    """See what two cross-checked runs do, and what lies in their exchange directory.

    DIR is what trainer.share_data_dir names on both sides.
    """


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def installation(arguments: tuple[str, ...]) -> None:
    """Show what is installed and what the fork changes in upstream.

    The same as `python -m verl.crosscheck`, and with its arguments and exit status. Takes seconds: imports upstream.
    """
    command = [sys.executable, "-m", "verl.crosscheck", *arguments]
    raise SystemExit(subprocess.run(command, check=False).returncode)


for _command in (run, status, report, doctor, show, clean, installation):
    main.add_command(_command)
