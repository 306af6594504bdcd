"""Start a program, and kill it with everything it started once whoever started us is gone.

Run as a script, so it imports nothing of ours: `python supervisor.py PROGRAM ARGUMENT…`. It leads a process group of
its own. Its standard input is a pipe that stays open as long as the parent lives, however the parent ends.
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


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main(command: list[str]) -> int:
    """The program's exit code; 128 and the signal's number if a signal killed it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        code = subprocess.Popen(command, stdin=subprocess.DEVNULL).wait()
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        return NOT_STARTED if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stderr.flush()
    # The thread that waits for the parent must not delay the end.
    os._exit(exit_code)
