"""Start a program, and kill it with everything it started once the process that started us is gone.

Run as a script, so it imports nothing of ours: `python supervisor.py LIFELINE PROGRAM ARGUMENT…`. It leads a process
group of its own. LIFELINE is the number of a pipe that stays open as long as the parent lives, however the parent ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

NOT_STARTED = 127
"""Exit code when there is no such program, as in a shell."""
NOT_EXECUTABLE = 126


def _end_with_parent(lifeline: int) -> None:
    while os.read(lifeline, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main(lifeline: int, command: list[str]) -> int:
    """The program's exit code; 128 and the signal's number if a signal killed it."""
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    try:
        code = subprocess.Popen(command).wait()
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        return NOT_STARTED if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    exit_code = main(int(sys.argv[1]), sys.argv[2:])
    sys.stderr.flush()
    # The thread that waits for the parent must not delay the end.
    os._exit(exit_code)
