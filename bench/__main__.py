"""Run benchmarks: all, or those named. Ends with one table of ratios, also if a target is missed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from bench import _figures

HERE = Path(__file__).parent


def main() -> None:
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    before, missed = _figures.last_ratios(), list[str]()
    for name in sys.argv[1:] or known:
        print(f"== {name}", flush=True)
        try:
            importlib.import_module(f"bench.{name}").main()
        except AssertionError as error:
            missed.append(f"{name}: {error}")
    has = _figures.machine()
    print(f"\n{_figures.table(before)}\n")
    print(f"{has['cpu']}, {has['cores']} cores, load {has['load']}; {has['system']}; Python {has['python']}")
    _figures.remember()
    if missed:
        sys.exit("missed: " + "; ".join(missed))


main()
