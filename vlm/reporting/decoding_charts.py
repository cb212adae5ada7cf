"""Charts of the KV cache's benchmark; see `charts` for what they share with the page's others."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from vlm.evaluation.timings import CostModel, Timing, speed_ups
from vlm.reporting.charts import INK, MARKERS, PALETTE, STYLE, legend, panel, svg


def decode_time(timings: Sequence[Timing], model: CostModel, batch: int, label: str) -> str:
    """Seconds to decode against the number of new tokens, at one batch size.

    Measured points with their whiskers, an arm each, and thin lines where the cost model puts
    them. The scale is that of all batch sizes, so that the panels of a sweep compare.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = panel()
        for number, arm in enumerate(dict.fromkeys(timing.arm for timing in timings)):
            chosen = [t for t in timings if t.arm == arm and t.batch == batch]
            lengths = [t.length for t in chosen]
            seconds = np.array([t.seconds for t in chosen])
            down = [t.seconds - t.seconds_min for t in chosen]
            up = [t.seconds_max - t.seconds for t in chosen]
            color = PALETTE[number % len(PALETTE)]
            axes.errorbar(
                lengths,
                seconds,
                yerr=np.maximum(0, [down, up]),
                color=color,
                marker=MARKERS[number % len(MARKERS)],
                linestyle="none",
                capsize=2,
                label=arm.replace("_", " "),
            )
            axes.plot(lengths, [model.predict(t) for t in chosen], color=color, linewidth=0.8)
        axes.plot([], [], color=INK, linewidth=0.8, label="cost model")
        _length_axis(axes, timings)
        axes.set_yscale("log")
        axes.set_ylim(
            0.7 * min(min(t.seconds_min, model.predict(t)) for t in timings),
            1.4 * max(max(t.seconds_max, model.predict(t)) for t in timings),
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylabel(f"seconds, batch of {batch}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        legend(axes, columns=3)
        return svg(figure, label)


def speed_up(timings: Sequence[Timing], label: str) -> str:
    """How many times faster the whole cache is than none, a line a batch size."""
    with matplotlib.rc_context(STYLE):
        figure, axes = panel()
        ratios = speed_ups(timings)
        for number, batch in enumerate(dict.fromkeys(timing.batch for timing in timings)):
            chosen = [t for t in timings if (t.batch, t.arm) == (batch, "cached")]
            axes.plot(
                [t.length for t in chosen],
                [ratios[t] for t in chosen],
                color=PALETTE[number % len(PALETTE)],
                marker=MARKERS[number % len(MARKERS)],
                label=f"batch of {batch}",
            )
        axes.axhline(1, color=INK, linewidth=0.8, linestyle="--", label="no gain")
        _length_axis(axes, timings)
        axes.set(ylabel="times faster than uncached", ylim=(0, None))
        legend(axes, columns=4)
        return svg(figure, label)


def time_shares(timings: Sequence[Timing], model: CostModel, label: str) -> str:
    """Where each cell's time goes by the cost model, as shares of a bar."""
    with matplotlib.rc_context(STYLE):
        figure, axes = panel(height=1.2 + 0.4 * len(timings))
        rows = np.arange(len(timings))
        parts = np.array([model.parts(t) for t in timings])
        shares = 100 * parts / parts.sum(axis=1, keepdims=True)
        ends = shares.cumsum(axis=1)
        for color, name, share, end in zip(
            PALETTE, ("overhead", "arithmetic", "reading"), shares.T, ends.T, strict=False
        ):
            axes.barh(rows, share, left=end - share, height=0.7, color=color, label=name)
        axes.set_yticks(rows, [f"{t.arm}, batch of {t.batch}" for t in timings])
        axes.grid(False)
        axes.set(xlabel="share of the time, %", xlim=(0, 100), ylim=(len(timings) - 0.5, -0.5))
        legend(axes, columns=3)
        return svg(figure, label)


def _length_axis(axes: Axes, timings: Sequence[Timing]) -> None:
    lengths = sorted({timing.length for timing in timings})
    axes.set_xscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("new tokens a picture")
