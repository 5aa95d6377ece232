#!/usr/bin/env python3
"""Runs a program of the tour and compares what it prints with the comment at the end of its source file.

  check_output.py SOURCE PROGRAM [--gpu]      --gpu: skipped where there is no GPU
"""

import argparse
import difflib
import pathlib
import subprocess
import sys

SKIPPED = 77
HAS_GPU = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "has_gpu"


def expected_output(source):
    _, marker, comment = source.read_text().partition("\n// Output:\n")
    if not marker or not comment:
        sys.exit(f"{source}: expected a comment '// Output:' at the end")
    return [line.removeprefix("//").removeprefix(" ") for line in comment.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("program")
    parser.add_argument("--gpu", action="store_true")
    arguments = parser.parse_args()
    if arguments.gpu and subprocess.run([HAS_GPU]).returncode != 0:
        sys.exit(SKIPPED)
    expected = expected_output(arguments.source)
    result = subprocess.run([arguments.program], stdout=subprocess.PIPE, text=True)
    if result.returncode == SKIPPED:
        print(result.stdout)
        sys.exit(SKIPPED)
    difference = list(difflib.unified_diff(expected, result.stdout.splitlines(), "expected", "printed", lineterm=""))
    print("\n".join(difference) if difference else result.stdout)
    if result.returncode != 0:
        sys.exit(f"{arguments.program}: exit code {result.returncode}")
    sys.exit(1 if difference else 0)


if __name__ == "__main__":
    main()
