"""Run benchmarks: all, or those named."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    for name in sys.argv[1:] or known:
        print(f"== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()


main()
