# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m verl.crosscheck`: what is installed, and what the fork changes in upstream.

Exit status 0 if the fork is in force over the release that it was made for, 1 if not.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import click

from verl.crosscheck.installation import Installation, OverlayFile, Role, read_installation

_TITLES = {
    Role.SHADOWS: "Modules of upstream that the fork takes the place of",
    Role.MERGED: "Configurations merged over upstream's",
    Role.NEW: "Added by the fork",
}
_MARKDOWN = {
    Role.SHADOWS: "upstream's module, overlaid",
    Role.MERGED: "upstream's configuration, merged over",
    Role.NEW: "new",
}


def report(installation: Installation) -> Iterator[str]:
    """Lines for a person."""
    yield from _columns([*_versions(installation), *_places(installation)])
    for role, title in _TITLES.items():
        files = _of_role(installation, role)
        yield ""
        yield f"{title} ({len(files)}):"
        yield from _columns([(f"  {file.name}", file.purpose) for file in files])
    yield ""
    yield from installation.problems
    yield f"The fork is {'active' if installation.active else 'NOT ACTIVE'}."


def markdown(installation: Installation) -> Iterator[str]:
    """The table of the README: one row a file, what the fork changes in upstream first."""
    yield "| file below `verl/` | is | purpose |"
    yield "|---|---|---|"
    for role, name in _MARKDOWN.items():
        for file in _of_role(installation, role):
            yield f"| `{file.path}` | {name} | {_cell(file.purpose)} |"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the files of the fork as a Markdown table.")
@click.pass_context
def main(ctx: click.Context, as_markdown: bool) -> None:
    """Print what is installed, and what the fork changes in upstream.

    Exit status: 0 if the fork is in force over the release that it was made for; 1 if not.
    """
    installation = read_installation()
    for line in (markdown if as_markdown else report)(installation):
        click.echo(line)
    ctx.exit(0 if installation.active else 1)


def _of_role(installation: Installation, role: Role) -> list[OverlayFile]:
    return [file for file in installation.files if file.role is role]


def _versions(installation: Installation) -> Iterator[tuple[str, str]]:
    yield "verl-crosscheck", installation.fork_version or "not installed"
    yield "verl (upstream)", installation.upstream_version or "not found"
    yield "python", platform.python_version()
    yield from installation.companions.items()


def _places(installation: Installation) -> Iterator[tuple[str, str]]:
    yield "interpreter", sys.executable
    yield "upstream in", str(installation.upstream_folder or "not found")
    yield "overlay in", str(installation.overlay_folder)


def _columns(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max((len(left) for left, _ in rows), default=0)
    for left, right in rows:
        yield f"{left:<{width}}  {right}".rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main(prog_name="python -m verl.crosscheck")
