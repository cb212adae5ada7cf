"""The benchmarks aren't installed with the package; they are found from the project's root."""

import sys

from project import ROOT

sys.path.append(str(ROOT))
