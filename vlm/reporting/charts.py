"""Charts as inline SVG: the same bytes for the same numbers, readable on light and dark pages.

Each chart is one small panel, so that a page sets them side by side on a wide screen and one
under another on a phone, with the same legible text on both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vlm.reporting.markup import percent

Floats = npt.NDArray[np.float64]
Curve = Mapping[str, Sequence[float]]  # the columns of a loss curve

# Of the palette of Okabe and Ito, those that stand out on white and on near-black alike.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE)
MARKERS = "osD^v"
# Stands for the page's own text colour, which depends on the reader's theme.
INK = "#010203"
WIDTH, HEIGHT = 5.2, 3.5  # inches; at 72 units an inch about as wide as a phone
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
}


@dataclass(frozen=True)
class Scores:
    """One head's accuracy by family, or other row, with 95% intervals; shares of 1."""

    value: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]


def loss_curves(curve: Curve, kept_step: int | None, unit: str, label: str) -> str:
    """Training and validation losses against the step, and the step that was kept."""
    with matplotlib.rc_context(STYLE):
        figure, axes = panel()
        terms = [name.removeprefix("train_") for name in curve if name.startswith("train_")]
        if len(terms) == 2:  # the loss and its only term, which are the same
            terms = ["loss"]
        mark = "." if len(curve["step"]) < 40 else ""
        for color, term in zip(PALETTE * len(terms), terms, strict=False):
            name = "total" if term == "loss" else term
            for split, dashes in (("train", ":"), ("val", "-")):
                axes.plot(
                    curve["step"],
                    curve[f"{split}_{term}"],
                    color=color,
                    linestyle=dashes,
                    marker=mark,
                    label=f"{split} {name}" if len(terms) > 1 else split,
                )
        if kept_step is not None:
            axes.axvline(kept_step, color=INK, linewidth=0.8, linestyle="--", label="kept")
        axes.set(xlabel="step", ylabel=f"loss, {unit}", ylim=(0, None))
        legend(axes, columns=4)
        return svg(figure, label)


def score_curve(curve: Curve, score: str, label: str) -> str:
    """A score of the validation split, in percent, against the step."""
    with matplotlib.rc_context(STYLE):
        figure, axes = panel()
        mark = "." if len(curve["step"]) < 40 else ""
        values = 100 * np.asarray(curve[f"val_{score}"])
        axes.plot(curve["step"], values, color=PALETTE[0], marker=mark, label="val")
        axes.axhline(90, color=INK, linewidth=0.8, linestyle="--", label="90%")
        axes.set(xlabel="step", ylabel=f"{score}, %", ylim=(0, 102))
        legend(axes, columns=2)
        return svg(figure, label)


def shares_by_row(
    heads: Mapping[str, Scores],
    floors: Mapping[str, float],
    label: str,
    axis: str = "exact match, %",
) -> str:
    """Shares of each head in each row, a family for one, with intervals, and each row's floor."""
    with matplotlib.rc_context(STYLE):
        names = list(floors)
        figure, axes = panel(height=1.2 + 0.5 * len(names))
        rows = np.arange(len(names))
        for number, (name, head) in enumerate(heads.items()):
            value, low, high = (
                np.array([100 * part.get(row, np.nan) for row in names])
                for part in (head.value, head.low, head.high)
            )
            axes.errorbar(
                value,
                rows + 0.24 * (number - (len(heads) - 1) / 2),
                xerr=np.maximum(0, [value - low, high - value]),
                color=PALETTE[number],
                marker=MARKERS[number],
                linestyle="none",
                capsize=3,
                label=name,
            )
        best = [100 * floors[row] for row in names]
        axes.vlines(best, rows - 0.4, rows + 0.4, colors=INK, linewidth=2)
        axes.plot([], [], "|", color=INK, markersize=11, markeredgewidth=2, label="floor")
        axes.set_yticks(rows, names)
        axes.set(xlabel=axis, xlim=(0, 102), ylim=(len(names) - 0.5, -0.5))
        legend(axes, columns=3)
        return svg(figure, label)


def reliability(curves: Mapping[str, Curve], label: str) -> str:
    """Accuracy against confidence in percent, bin by bin, beside the diagonal of a perfect one.

    The more questions a bin holds, the larger its point.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = panel(height=4.2)
        axes.plot([0, 100], [0, 100], color=INK, linewidth=0.8, linestyle="--", label="calibrated")
        looks = zip(PALETTE, MARKERS, ("none", "full"), curves.items(), strict=False)
        for color, marker, fill, (name, curve) in looks:
            x, y = (100 * np.asarray(curve[key]) for key in ("confidence", "accuracy"))
            size = 12 * (1 + np.log10(np.maximum(1, curve["questions"])))
            face = color if fill == "full" else "none"
            axes.plot(x, y, color=color, linewidth=0.8)
            axes.scatter(
                x, y, size, marker=marker, edgecolors=color, facecolors=face, label=name, zorder=3
            )
        axes.set(xlabel="confidence, %", ylabel="right, %", xlim=(0, 102), ylim=(0, 102))
        legend(axes, columns=3)
        return svg(figure, label)


def error_sizes(heads: Mapping[str, Mapping[str, float]], sizes: Sequence[str], label: str) -> str:
    """The share of errors of each size in percent, the heads' bars side by side."""
    with matplotlib.rc_context(STYLE):
        figure, axes = panel()
        places, width = np.arange(len(sizes)), 0.8 / len(heads)
        for number, (name, shares) in enumerate(heads.items()):
            axes.bar(
                places + width * (number - (len(heads) - 1) / 2),
                [100 * shares.get(size, 0.0) for size in sizes],
                width,
                color=PALETTE[number],
                label=name,
            )
        axes.set_xticks(places, sizes)
        axes.set(xlabel="said minus true", ylabel="of counting questions, %")
        legend(axes, columns=2)
        return svg(figure, label)


def confusion_matrix(counts: npt.NDArray[np.int64], answers: Sequence[str], label: str) -> str:
    """Counts and row shares of the predictions (columns) for each true answer (rows)."""
    with matplotlib.rc_context(STYLE):
        size = len(answers)
        side = max(WIDTH, 1.2 + 0.55 * size)
        figure, axes = panel(side, side * 0.92)
        shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        for row, column in np.ndindex(counts.shape):
            # Never opaque, so that the page's text colour stays readable on it.
            alpha = 0.65 * shares[row, column]
            corner = column - 0.5, row - 0.5
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=BLUE, alpha=alpha, linewidth=0))
            if counts[row, column]:
                text = f"{counts[row, column]}\n{percent(float(shares[row, column]))}"
                axes.text(column, row, text, ha="center", va="center", fontsize=9)
        axes.set_xticks(range(size), answers, rotation=45 if size > 8 else 0)
        axes.set_yticks(range(size), answers)
        axes.set(
            xlabel="the classifier's answer",
            ylabel="true answer",
            xlim=(-0.5, size - 0.5),
            ylim=(size - 0.5, -0.5),
        )
        axes.grid(False)
        axes.tick_params(length=0)
        return svg(figure, label)


def panel(width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """An empty chart, and the axes to draw on."""
    figure = Figure((width, height), layout="constrained")
    return figure, figure.add_subplot()


def legend(axes: Axes, columns: int) -> None:
    """A legend above the panel, where it can hide no data."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, columnspacing=1.2)


def svg(figure: Figure, label: str) -> str:
    """The figure as an SVG element for an HTML page; `label` says it to those who can't see it."""
    out = StringIO()
    # The salt makes ids the same in every run, and other than those of the page's other charts.
    with matplotlib.rc_context({"svg.hashsalt": label}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(out, metadata=nothing)
    width, height = 72 * figure.get_size_inches()
    drawn = re.sub(r"^.*?<svg[^>]*>", "", out.getvalue(), count=1, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # numbered alike in each chart
    drawn = re.sub(r"<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("xlink:href", "href").replace(INK, "currentColor")
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width: {1.5 * width:g}px"'
    return f'<svg role="img" aria-label="{escape(label)}" {size}>{drawn}'
