#!/usr/bin/env python3
"""Builds the API reference; fails with the list of warnings if a public name has no docstring or a docstring is wrong.

Usage: reference.py DOXYGEN DOXYFILE WORK

Exit code 77 (skipped) if DOXYGEN is not doxygen 1.9: other releases warn of other things.
"""
import pathlib
import subprocess
import sys

SKIPPED = 77


def version_of(doxygen):
    """What `doxygen --version` prints; empty if there is no such program."""
    try:
        return subprocess.run([doxygen, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main():
    doxygen, doxyfile, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    version = version_of(doxygen)
    if not version.startswith("1.9."):
        print(f"skipped: docs.reference needs doxygen 1.9, but found {version or 'none'}")
        return SKIPPED
    work.mkdir(parents=True, exist_ok=True)
    settings = f'{doxyfile.read_text(encoding="utf-8")}\nOUTPUT_DIRECTORY = "{work}"\n'
    done = subprocess.run([doxygen, "-"], input=settings, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode == 0 and not (work / "html" / "index.html").exists():
        print(f"expected {work}/html/index.html, but doxygen wrote none")
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
