# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""SVG for a page: drawn by matplotlib, coloured by the page's own style, so that it follows light and dark.

Each colour that is drawn with stands for a variable of the page; text stays text, in the page's font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, LINE, PLAIN, DIFFER, LIMIT, OF_A, OF_B = (f"#0102{number:02x}" for number in range(8))
"""Colours to draw with."""

_VARIABLES = dict(
    zip(
        (INK, MUTED, LINE, PLAIN, DIFFER, LIMIT, OF_A, OF_B),
        ("--ink", "--muted", "--line", "--plain", "--differ", "--limit", "--of-a", "--of-b"),
        strict=True,
    )
)

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "verl-crosscheck",
    "path.simplify": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
    "axes.formatter.use_mathtext": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.labelcolor": MUTED,
}


@dataclass
class Drawing:
    """A figure in the making; `svg` is there once the block of `drawn` is left."""

    axes: Axes
    svg: str = ""


@contextmanager
def drawn(name: str, width_in: float, height_in: float) -> Iterator[Drawing]:
    """A figure with one pair of axes.

    Args:
        name: unique on the page, of letters, digits and `-`; ids of the figure begin with it.
    """
    with matplotlib.rc_context(_STYLE):
        # Fixed margins: a layout that measures texts takes longer than all the rest.
        figure = Figure(figsize=(width_in, height_in))
        figure.subplots_adjust(left=0.5 / width_in, right=1 - 0.08 / width_in, bottom=0.24 / height_in, top=0.97)
        drawing = Drawing(figure.add_subplot())
        yield drawing
        out = io.StringIO()
        no_metadata: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # the page's fonts have what matplotlib's lacks
            figure.savefig(out, format="svg", metadata=no_metadata)
        drawing.svg = _inline(out.getvalue(), name)


def _inline(svg: str, name: str) -> str:
    """As part of an HTML page: no prologue, ids of its own, the page's colours and fonts, as large as its place."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return re.sub(r"\n\s*", "\n", svg).strip()
