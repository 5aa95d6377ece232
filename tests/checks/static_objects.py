"""Fails if an object file of libgantry has a static object with a destructor: background threads may use it while exit() destroys
it. See Note [Background threads at exit]. Usage: static_objects.py OBJDUMP OBJECTS, a file with a path a line
"""

import pathlib
import re
import subprocess
import sys

# The compiler registers the destructor of a static object by this function; std::atexit() has another name.
REGISTRATION = "__cxa_atexit"
# The object that <iostream> defines, which CUB includes. It flushes the standard streams, which nothing of gantry uses.
ALLOWED = "_ZNSt8ios_base4InitD1Ev"


def relocations(objdump_output):
    """How often each symbol is referred to, by name."""
    counts = {}
    for match in re.finditer(r"^[0-9a-f]+\s+R_\S+\s+([^\s+-]+)", objdump_output, re.MULTILINE):
        counts[match[1]] = counts.get(match[1], 0) + 1
    return counts


def has_destructor(objdump_output):
    """True if code registers the destructor of a static object that is not allowed."""
    counts = relocations(objdump_output)
    return counts.get(REGISTRATION, 0) > counts.get(ALLOWED, 0)


def guarded(symbols):
    """The functions' static objects, which are the likely ones, without nvcc's."""
    names = [line.partition("guard variable for ")[2] for line in symbols.splitlines() if "guard variable for " in line]
    return [name for name in names if not name.endswith("::__tmp")]


def output_of(objdump, options, path):
    return subprocess.run([objdump, *options, path], check=True, capture_output=True, text=True).stdout


def main(arguments):
    objdump, list_file = arguments
    failed = False
    for line in pathlib.Path(list_file).read_text(encoding="utf-8").splitlines():
        path = line.strip()
        if not path.endswith(".o") or not has_destructor(output_of(objdump, ["-r"], path)):
            continue
        names = ", ".join(guarded(output_of(objdump, ["-t", "-C"], path))) or "a static object"
        print(f"{path}: exit() destroys {names}; make it 'static auto& name = *new …', which is never destroyed")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
