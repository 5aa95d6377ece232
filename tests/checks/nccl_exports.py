"""Fails if libgantry_nccl.so lacks a function that nccl.h declares: a program that calls it does not start."""

import argparse
import pathlib
import re
import sys

from exported_symbols import exported

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
FUNCTION = re.compile(r"\b(p?nccl[A-Z]\w*)\s*\([^;{]*\)\s*;")


def missing(header, names):
    """Functions that the text of the header declares, and that are not among the names, sorted."""
    return sorted(set(FUNCTION.findall(COMMENT.sub(" ", header))) - set(names))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=pathlib.Path, help="libgantry_nccl.so")
    parser.add_argument("header", type=pathlib.Path, help="nccl.h")
    options = parser.parse_args()
    header = options.header.read_text(encoding="utf-8")
    if not missing(header, []):
        sys.exit(f"{options.header}: no function was found here")
    found = missing(header, exported(options.library))
    for name in found:
        print(f"{options.header}: {name} is declared, but the library does not export it")
    if found:
        sys.exit(f"{len(found)} violation(s)")


if __name__ == "__main__":
    main()
