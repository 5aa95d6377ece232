"""Fails if an object file for newer processors defines a function that other files may share: the linker could keep its copy
for all of them. See Note [One library for several processors]. Usage: instruction_sets.py NM FOLDER
"""

import pathlib
import re
import subprocess
import sys

# Their sources say in their names what they are compiled for.
NEWER = re.compile(r"_(avx2|avx512|avx512bf16|sve)\.cpp\.o")

# Functions of these namespaces exist in files for one kind of processor only.
OWN = re.compile(r"EigenForAvx(2|512)|multiply_avx(2|512)|^DW\.ref\.")


def shared_symbols(nm_output):
    """The symbols that the linker merges (weak or unique), but for the symbols of OWN."""
    found = []
    for line in nm_output.splitlines():
        match = re.match(r"[0-9a-f]+ ([WVu]) (.+)", line)
        if match and not OWN.search(match.group(2)):
            found.append(match.group(2))
    return found


def main(arguments):
    nm, folder = arguments
    failed = False
    for path in sorted(pathlib.Path(folder).glob("*.o")):
        if not NEWER.search(path.name):
            continue
        for symbol in shared_symbols(subprocess.run([nm, "-C", path], check=True, capture_output=True, text=True).stdout):
            print(f"{path}: {symbol} may replace the function of other files")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
