#!/usr/bin/env python3
"""Runs doxygen over the public headers; fails with its warnings if a name has no docstring or a docstring is wrong.

Usage: docstrings.py ROOT WORK

Exit code 77 (skipped) without doxygen 1.9: other releases warn of other things.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import reference  # noqa: E402

SKIPPED = 77


def main():
    root, work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    version = reference.version_of("doxygen")
    if not version.startswith("1.9."):
        print(f"skipped: docs.reference needs doxygen 1.9, but found {version or 'none'}")
        return SKIPPED
    work.mkdir(parents=True, exist_ok=True)
    code, warnings = reference.run("doxygen", reference.settings(root, work))
    sys.stderr.write(warnings)
    if code == 0 and not (work / "html" / "index.html").exists():
        print(f"expected {work}/html/index.html, but doxygen wrote none")
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
