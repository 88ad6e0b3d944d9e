#!/usr/bin/env bash
# The Python part of `make demo`: installs the package into target/venv and compares policies, one of them written in Python.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/python.sh install
if [ ! -x target/venv/bin/python ]; then
  exit 0 # scripts/python.sh has said why
fi
mkdir -p out
target/venv/bin/python - <<'PYTHON'
import margay
from margay import plot


def fewest_valid(segments):
    candidates = segments.candidates
    return candidates[segments.valid[candidates].argmin()]


device = {"flash_size": "16M", "pages_per_segment": 64, "device_writes": 6}
for selection in (fewest_valid, "greedy", "cost-benefit"):
    row = margay.simulate("hot-cold:90/10", selection=selection, **device).row
    print(f"{row['selection']:<50} WA {row['wa']:.3f}  erases {row['erases']}")
results = margay.compare("hot-cold:90/10", **device)
plot.comparison(results).figure.savefig("out/demo-python.png", dpi=120)
print("plot: out/demo-python.png")
PYTHON
