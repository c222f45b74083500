"""Become another program, asked to stop when our parent dies: `python -I -S launch.py PARENT-PID PROGRAM ARGUMENT…`.

Done here and not between fork and exec, where Python code is not safe in a process that has threads. The wish survives
exec. Linux only; elsewhere this is a plain exec, and children of a killed supervisor live on.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    parent, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before we could ask
            sys.exit(f"{program}: the parent process is gone")
    os.execvp(program, [program, *arguments])


if __name__ == "__main__":
    main()
