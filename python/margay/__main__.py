"""What the command runs: ``python3 -m margay run-points`` runs the points on its standard input on a cluster of Dask."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    """Read the words of the command line, and do as they say."""
    parser = argparse.ArgumentParser(prog="python3 -m margay")
    actions = parser.add_subparsers(dest="action", required=True)
    points = actions.add_parser("run-points", help="run points of a sweep, given as lines of JSON; for `margay sweep`")
    points.add_argument("--scheduler", help="address of the scheduler of Dask; without it, workers of this machine")
    points.add_argument("--jobs", type=int, help="number of workers on this machine; without it, one for each core")
    words = parser.parse_args()
    from margay.distributed import run_points_of_command

    return run_points_of_command(sys.stdin, sys.stdout, words.scheduler, words.jobs)


if __name__ == "__main__":
    sys.exit(main())
