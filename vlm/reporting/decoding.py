"""The page's section on the KV cache: what it saves, when, and why then.

Every sentence is made of the sweep's numbers; none says beforehand what they will be.
"""

from collections.abc import Mapping, Sequence

from vlm.evaluation.timings import CostModel, Timing, exponents, fit_costs, speed_ups
from vlm.reporting import decoding_charts
from vlm.reporting.inputs import Figures, Inputs
from vlm.reporting.markup import (
    MISSING,
    Html,
    counted,
    details,
    duration,
    element,
    figure,
    number,
    paragraph,
    percent,
    section,
    table,
)

MIB = 2**20


def kv_cache(inputs: Inputs) -> Html:
    """What the cache saves, on which machine, and that it changes nothing."""
    figures, sweep = inputs.metrics["benchmark_kv_cache"], inputs.sweep
    model = fit_costs(sweep)
    return section(
        "kv-cache",
        "KV cache",
        _equality(figures),
        _machine(figures),
        _charts(sweep, model),
        element("h3", "Double the length"),
        *_double_the_length(sweep),
        element("h3", "Shrink the batch"),
        _shrink_the_batch(sweep, model),
        element("h3", "What a step costs"),
        _cost_model(sweep, model),
        _cells(sweep, model, figures),
    )


def _equality(figures: Figures) -> Html:
    same = "the same tokens" if figures.get("tokens_equal") == 1 else "DIFFERENT tokens"
    return paragraph(
        f"With and without the cache the model gives {same}; logits differ by at most"
        f" {_small(figures.get('max_logit_diff'))} (tolerance"
        f" {_small(figures.get('logit_tolerance'))}). “Cross only” keeps the picture's keys and"
        " values, “self only” those of the text so far, “cached” both."
    )


def _machine(figures: Figures) -> Html:
    machine: Mapping[str, object] = figures.get("machine", {})
    parts: Sequence[tuple[str, str]] = [
        ("", "cpu"),
        ("cores ", "cores"),
        ("threads ", "threads"),
        ("PyTorch ", "torch"),
        ("", "system"),
    ]
    told = ", ".join(f"{words}{machine.get(key, MISSING)}" for words, key in parts)
    return paragraph(element("strong", "Measured on: "), told, ".")


def _charts(sweep: Sequence[Timing], model: CostModel) -> Html:
    panels = [
        figure(
            decoding_charts.decode_time(
                sweep, model, batch, f"decode time against length at batch {batch}"
            ),
            f"Seconds to decode, batch of {batch}; both scales are logarithmic. Lower is faster."
            " Points are medians, whiskers the least and the most, thin lines the cost model.",
        )
        for batch in _batches(sweep)
    ]
    gain = figure(
        decoding_charts.speed_up(sweep, "speed-up of the whole cache against length"),
        "How many times faster the whole cache is than none; the dashed line is no gain.",
    )
    longest = max(t.length for t in sweep)
    ends = [
        _at(sweep, arm, batch, longest)
        for arm in ("uncached", "cached")
        for batch in _batches(sweep)
    ]
    shares = figure(
        decoding_charts.time_shares(ends, model, "shares of the decode time by the cost model"),
        f"Where the time of {counted(longest, 'token')} goes by the cost model, without a cache"
        " and with the whole of it, at each batch size.",
    )
    return element("div", *panels, gain, shares, class_="charts")


def _double_the_length(sweep: Sequence[Timing]) -> list[Html]:
    """The growth from the last length that is doubled, and fitted over all lengths."""
    lengths = {t.length for t in sweep}
    doubled = [length for length in sorted(lengths) if 2 * length in lengths]
    told = [_growth(sweep, batch, doubled[-1]) for batch in _ends(_batches(sweep)) if doubled]
    told = told or ["No length of this sweep is twice another."]
    found = exponents(sweep)
    if not found:
        return [paragraph(" ".join(told))]
    rows = [
        [arm.replace("_", " "), *(f"{exponent:.2f}" for exponent in by_batch.values())]
        for arm, by_batch in found.items()
    ]
    header = ["cache", *(f"batch of {batch}" for batch in _batches(sweep))]
    note = (
        f"The power of the length by which time grows, fitted over lengths {min(lengths)} to"
        f" {max(lengths)}: with 1, twice the length takes twice as long, with 2 four times"
    )
    return [paragraph(" ".join(told)), table(header, rows, note)]


def _growth(sweep: Sequence[Timing], batch: int, length: int) -> str:
    """What twice the length costs, in time and in arithmetic."""
    time, work = {}, {}
    for arm in ("uncached", "cached"):
        once, twice = (_at(sweep, arm, batch, times * length) for times in (1, 2))
        time[arm], work[arm] = twice.seconds / once.seconds, twice.flops / once.flops
    return (
        f"At a batch of {batch}, {2 * length} tokens take {time['uncached']:.1f} times as long as"
        f" {length} without a cache ({work['uncached']:.1f} times the arithmetic), and"
        f" {time['cached']:.1f} times with the whole of it ({work['cached']:.1f} times)."
    )


def _shrink_the_batch(sweep: Sequence[Timing], model: CostModel) -> Html:
    """The cache's gain at each batch size, beside what no cache saves."""
    longest, ratios = max(t.length for t in sweep), speed_ups(sweep)
    cells = [_at(sweep, "cached", batch, longest) for batch in reversed(_batches(sweep))]
    gains = ", ".join(f"{ratios[t]:.1f} at a batch of {t.batch}" for t in cells)
    steps = ", ".join(f"{t.ms_per_step:.3g} ms at {t.batch}" for t in cells)
    shares = ", ".join(
        f"{percent(model.parts(t).overhead / model.predict(t))} at {t.batch}" for t in cells
    )
    return paragraph(
        f"Of {counted(longest, 'token')}, how many times faster the whole cache is: {gains}. A"
        f" step with it takes {steps}. The share of that which the cost model gives to"
        f" overhead, what a step costs however little it computes and no cache saves: {shares}."
    )


MISFIT = 0.3  # a median error beyond which the cost model explains nothing


def _cost_model(sweep: Sequence[Timing], model: CostModel) -> Html:
    """The model's parameters with their units, and how well they fit."""
    told = model.figures(sweep)
    worst = max(sweep, key=model.error)
    return paragraph(
        "The cost model says: seconds = steps x overhead + arithmetic / its rate + keys and values"
        " read / theirs. Fitted at once to all"
        f" {counted(len(sweep), 'cell')}, with the least squares of relative errors: overhead"
        f" {told['ms_per_step']:.3g} ms a step, arithmetic at"
        f" {_rate(model.seconds_per_flop, 'GFLOP/s')}, reading at"
        f" {_rate(model.seconds_per_byte, 'GB/s')}. It is"
        f" {percent(told['median_error'])} off in the median cell and"
        f" {percent(told['worst_error'])} in the worst, {worst.arm.replace('_', ' ')} at a batch of"
        f" {worst.batch} and {counted(worst.length, 'token')}.{_doubts(sweep, model)}"
    )


def _doubts(sweep: Sequence[Timing], model: CostModel) -> str:
    """Where the model, or the timings under it, had better not be read."""
    doubts = []
    below = sum(t.seconds < model.parts(t).overhead for t in sweep)
    if below:
        doubts.append(
            f"In {counted(below, 'cell')} the whole step took less than that overhead, overstated"
            " there."
        )
    if model.figures(sweep)["median_error"] > MISFIT:
        doubts.append("So it doesn't fit these timings: read nothing from its shares.")
    once = sum(t.rounds == 1 for t in sweep)
    if once:
        doubts.append(f"Of {counted(once, 'cell')}, timed once only, no spread is known.")
    return "".join(f" {doubt}" for doubt in doubts)


def _cells(sweep: Sequence[Timing], model: CostModel, figures: Figures) -> Html:
    """The whole sweep, a row a cell, to be opened."""
    ratios = speed_ups(sweep)
    rows = [
        [
            f"{counted(t.batch, 'picture')}, {counted(t.length, 'token')}",
            t.arm.replace("_", " "),
            duration(t.seconds),
            f"{duration(t.seconds_min)} to {duration(t.seconds_max)}",
            t.rounds,
            f"{t.ms_per_step:.3g}",
            f"{1000 * model.predict(t) / t.length:.3g}",
            f"{t.tokens_per_second:,.0f}",
            f"{ratios[t]:.2f}x",
            _held(t),
            f"{t.flops / 1e9:.3g}",
        ]
        for t in sweep
    ]
    header = ["size", "cache", "median", "least to most", "rounds", "ms a step"]
    header += ["predicted ms a step", "tokens / s", "against uncached", "cache, MiB", "GFLOP"]
    differ = sum(t.cache_bytes != t.cache_bytes_predicted for t in sweep)
    note = (
        f"Each cell is timed up to {number(figures.get('repeats'))} times, the arms in turn. The"
        " cache is measured; the bytes that its shape predicts are"
        f" {'others in ' + counted(differ, 'cell') if differ else 'the same in every cell'}. The"
        " arithmetic is counted, two operations a multiply-add"
    )
    return details(f"All {counted(len(sweep), 'cell')} of the sweep", table(header, rows, note))


def _held(timing: Timing) -> str:
    """A cache's size, and the predicted one where they differ."""
    measured, predicted = timing.cache_bytes, timing.cache_bytes_predicted
    same = measured == predicted
    return f"{measured / MIB:.3g}" + ("" if same else f" (predicted {predicted / MIB:.3g})")


def _rate(seconds_each: float, unit: str) -> str:
    """A rate of the cost model; it has none where the timings show no such cost."""
    return f"{1e-9 / seconds_each:.3g} {unit}" if seconds_each else "no cost that shows"


def _at(sweep: Sequence[Timing], arm: str, batch: int, length: int) -> Timing:
    """One cell of the sweep."""
    return next(t for t in sweep if (t.arm, t.batch, t.length) == (arm, batch, length))


def _batches(sweep: Sequence[Timing]) -> list[int]:
    """The batch sizes, the smallest first."""
    return sorted({t.batch for t in sweep})


def _ends(values: Sequence[int]) -> list[int]:
    """The last and the first, or the only one."""
    return list(dict.fromkeys([values[-1], values[0]]))


def _small(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"
