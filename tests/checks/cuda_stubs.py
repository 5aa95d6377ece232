"""Fails if a build without CUDA or NCCL would not link: if a function that this build defines in a folder cuda or nccl, and that
other objects use, has no stub in the sources that stand in for that folder.

Usage: cuda_stubs.py NM OBJECTS STUBS, two files with a path on each line: the objects of the library, and the objects of the stubs.
"""

import pathlib
import re
import subprocess
import sys

# Without CUDA they are not compiled; a watch of deadlines is.
REPLACED = re.compile(r"/cuda/|/nccl/(?!deadline\.)")


def symbols(nm, objects, *options):
    """The names that nm prints of some objects."""
    command = [nm, "-P", *options, *objects]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0] for line in lines if len(line.split()) > 1}


def read_list(path):
    """The objects of a list; CMake adds precompiled headers."""
    return [line for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines() if line.endswith(".o")]


def main():
    nm, objects, stubs = sys.argv[1], read_list(sys.argv[2]), read_list(sys.argv[3])
    replaced = [path for path in objects if REPLACED.search(path)]
    kept = [path for path in objects if not REPLACED.search(path)]
    if not replaced or not kept or not stubs:
        print("expected objects of both kinds, and stubs")
        return 1
    used = (symbols(nm, kept, "-u") - symbols(nm, kept, "--defined-only")) & symbols(nm, replaced, "--defined-only", "-g")
    missing = sorted(used - symbols(nm, stubs, "--defined-only", "-g"))
    names = subprocess.run(["c++filt"], input="\n".join(missing), capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        print(f"{name} has no stub for builds without CUDA or NCCL")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
