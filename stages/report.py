"""Write one self-contained page about the run that a person can read offline.

Reads the metrics, plots and predictions of all other stages, `data/test`, and every param;
writes `reports/index.html`. Seconds and memory come from `.runtime/` where it is there.
"""

from pathlib import Path

from stages.running.stage import run
from vlm.config import Params
from vlm.files import write_text
from vlm.reporting.inputs import read_inputs
from vlm.reporting.page import build_page

PAGE = Path("reports/index.html")


def main(params: Params) -> None:
    inputs = read_inputs(Path(), params.model_dump(mode="json"))
    write_text(PAGE, build_page(inputs))


if __name__ == "__main__":
    run("report", main)
