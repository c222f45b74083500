"""Runs luacheck on the library that the server sees: all scripts with what they include."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lua import library

WIDTH = 120
IGNORED = ("211", "212/KEYS", "212/ARGV")
OPTIONS = ("--std", "lua51+redis", "--no-max-line-length", "--no-color", "--codes", "-q", "--ignore", *IGNORED, "--")
CONFIG = 'stds.redis = { read_globals = { "redis", "cjson", "cmsgpack", "struct" } }\n'


def main() -> int:
    """Return luacheck's exit status; 0 with a loud line where luacheck is missing."""
    if shutil.which("luacheck") is None:
        print("luacheck is not installed (Debian: apt-get install lua-check): the Lua scripts were NOT linted")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config")
        config.write_text(CONFIG)
        path = Path(folder, "library.lua")
        path.write_text("--" + library().text)  # the first line is for the server, not for Lua
        checked = subprocess.run(["luacheck", "--config", str(config), *OPTIONS, str(path)], check=False).returncode
    return checked or _check_width()


def _check_width() -> int:
    status = 0
    for path in sorted(Path(__file__).parent.rglob("*.lua")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if len(line) > WIDTH:
                print(f"{path.name}:{number}: line is too long ({len(line)} > {WIDTH})")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
