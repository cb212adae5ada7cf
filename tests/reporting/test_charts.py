import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
from example_run import COSTS, timings

from vlm.evaluation.timings import CostModel
from vlm.reporting import charts, decoding_charts
from vlm.reporting.charts import INK, Scores

CURVE = {
    "step": [100, 200],
    **{f"{split}_{term}": [2.0, 1.0] for split in ("train", "val") for term in ("loss", "lm", "x")},
    "rate": [0.1, 0.0],
}
ONE_TERM = {name: CURVE[name] for name in ("step", "train_loss", "val_loss")}
SWEEP = timings()
SHARES = {"count": 0.9, "exists": 0.8}
HEADS = {"classifier": Scores(SHARES, SHARES, SHARES), "generator": Scores(SHARES, {}, {})}

BINS = {"confidence": [0.6, 0.9], "accuracy": [0.5, 0.95], "questions": [3, 200]}
ERRORS = {"classifier": {"+0": 0.9, "+1": 0.1}, "generator": {"+0": 1.0}}

CHARTS: dict[str, Callable[[], str]] = {
    "losses": lambda: charts.loss_curves(CURVE, 200, "nats", "losses <&>"),
    "one loss": lambda: charts.loss_curves(ONE_TERM, None, "nats", "one"),
    "families": lambda: charts.shares_by_row(HEADS, {"count": 0.3, "exists": 0.5}, "families"),
    "confusion": lambda: charts.confusion_matrix(np.array([[3, 1], [0, 0]]), ["no", "yes"], "c"),
    "reliability": lambda: charts.reliability({"before": BINS, "after": BINS}, "reliability"),
    "error sizes": lambda: charts.error_sizes(ERRORS, ["-1", "+1"], "error sizes"),
    "time": lambda: decoding_charts.decode_time(SWEEP, COSTS, 8, "time"),
    "speed-up": lambda: decoding_charts.speed_up(SWEEP, "speed-up"),
    "shares": lambda: decoding_charts.time_shares(SWEEP[:2], COSTS, "shares"),
    "shares of one cost": lambda: decoding_charts.time_shares(
        SWEEP[:2], CostModel(1.0, 0.0, 0.0), "one cost"
    ),
}


@pytest.mark.parametrize("draw", CHARTS.values(), ids=CHARTS)
def test_a_chart_is_one_well_formed_element_and_the_same_each_time(
    draw: Callable[[], str],
) -> None:
    svg = draw()
    assert ElementTree.fromstring(svg).get("role") == "img"
    assert svg == draw()
    assert "http" not in svg
    assert "#ffffff" not in svg  # no background of its own
    assert INK not in svg
    assert "currentColor" in svg


def test_ids_of_two_charts_differ() -> None:
    ids = [re.findall(r'\bid="([^"]+)"', draw()) for draw in CHARTS.values()]
    everything = [one for of_a_chart in ids for one in of_a_chart]
    assert len(set(everything)) == len(everything)


def test_a_share_that_is_not_quite_all_or_nothing_never_reads_so() -> None:
    svg = charts.confusion_matrix(np.array([[9_984, 16], [0, 3]]), ["no", "yes"], "c")
    texts = {text.strip() for text in re.findall(r">([^<>\n]+)</t", svg)}
    assert {"9984", "99.8%", "16", "0.2%", "3", "100.0%"} <= texts
    assert not {"0%", "0.0%", "100%"} & texts


def test_a_confusion_matrix_states_counts_and_row_shares() -> None:
    svg = CHARTS["confusion"]()
    texts = re.findall(r">([^<>\n]+)</t", svg)
    assert {"3", "75.0%", "1", "25.0%"} <= {text.strip() for text in texts}
