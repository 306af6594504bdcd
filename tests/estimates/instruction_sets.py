"""Other instruction sets of this processor, and the numeric tests under the oldest of them.

numpy and OpenBLAS choose their loops by processor, and these differ in the last bits of sums and exponentials. Results
must not: `make soak` runs this module, and `make test` compares tables in `test_instruction_sets`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

_VARIABLES = ("NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE")
_X86 = ("x86_64", "amd64", "i386", "i686")
_AVX2 = ("X86_V3", "AVX", "AVX2", "FMA3", "F16C", "FMA4", "XOP")
"""What a processor without AVX-512 still has; numpy named it differently before 2.4."""


def native() -> dict[str, str]:
    """The environment without any of the variables."""
    return {name: value for name, value in os.environ.items() if name not in _VARIABLES}


def older() -> dict[str, dict[str, str]]:
    """Environments by name, the oldest instruction set last; none on a processor that is not x86."""
    if platform.machine().lower() not in _X86:
        return {}
    # Features that this numpy does not choose between are no business of ours: naming them is a warning.
    ask = 'import json, numpy; print(json.dumps(numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", [])))'
    answer = subprocess.run([sys.executable, "-c", ask], env=native(), check=True, capture_output=True, text=True)
    features: list[str] = json.loads(answer.stdout)
    without_avx512 = [feature for feature in features if feature not in _AVX2]
    return {
        name: {**native(), "NPY_DISABLE_CPU_FEATURES": " ".join(disabled), "OPENBLAS_CORETYPE": "Prescott"}
        for name, disabled in (("without AVX-512", without_avx512), ("oldest", features))
    }


def main() -> int:
    environment = older().get("oldest")
    if environment is None:
        print(f"No second instruction set is known for {platform.machine()}: the numeric tests ran only once.")
        return 0
    print(f"Numeric tests again, without {environment['NPY_DISABLE_CPU_FEATURES'] or 'OpenBLAS kernels of this CPU'}")
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-m", "numeric and not soak", *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
