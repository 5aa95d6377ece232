"""The source files of the project, and how a check reports what it found."""

import argparse
import pathlib
import sys

LAYERS = ["core", "job", "machine", "device", "streams", "memory", "snapshots", "ipc", "kernels", "tensor", "collectives"]
CODE_SUFFIXES = {".hpp", ".cpp", ".inl", ".cu", ".cuh", ".h", ".c"}
CODE_FOLDERS = ["include", *LAYERS, "compat", "command_line", "launcher", "tools", "tests", "examples", "benchmarks"]


def code_files(root, folders=CODE_FOLDERS, suffixes=CODE_SUFFIXES):
    """All code files below the given folders, as paths relative to the root, sorted."""
    files = []
    for folder in folders:
        for path in (root / folder).rglob("*"):
            if path.suffix in suffixes and path.is_file():
                files.append(path.relative_to(root))
    return sorted(files)


def read_lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def run_check(description, find_violations):
    """The main function of a check: prints the violations of the tree named on the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("root", type=pathlib.Path, help="root of the source tree")
    root = parser.parse_args().root
    if not code_files(root):
        sys.exit(f"{root}: no code file was found here")
    violations = find_violations(root)
    for violation in violations:
        print(violation)
    if violations:
        sys.exit(f"{len(violations)} violation(s)")
