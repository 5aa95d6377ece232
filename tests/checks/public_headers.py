"""Fails on a public header that includes anything but the standard library and gantry, and on conditional compilation
outside the few files that exist to hold it.
"""

import fnmatch
import re

from source_tree import LAYERS, code_files, read_lines, run_check

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD_HEADER = re.compile(r"^[a-z_]+$")
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else)\b")

# A header of its own for the type of another library.
MAY_INCLUDE = {
    "include/gantry/collectives/mpi.hpp": "mpi.h",
    "include/gantry/memory/cccl.hpp": "cuda/memory_resource",
}
# Everything else is written once, or chosen by CMake at link time.
MAY_BE_CONDITIONAL = [
    "core/assert.hpp",  # GANTRY_ASSERT, which Release builds leave out
    "core/code_size.hpp",  # nvcc spells its attributes differently
    "include/gantry/core/float16.hpp",  # std::formatter, where the library has it
    "include/gantry/core/macros.hpp",  # GANTRY_HD
    # Kernels of users: one source for nvcc and the host's compiler.
    "include/gantry/kernels/atomic.hpp",
    "include/gantry/kernels/block.hpp",
    "include/gantry/kernels/gpu_launch.hpp",
    "include/gantry/collectives/channel.hpp",
    "include/gantry/memory/cccl.hpp",  # which stream a file means by 0 is known to the preprocessor alone
    "kernels/math/math.hpp",  # the host's functions or the GPU's, in one functor
    "kernels/math/brief_math.hpp",  # instructions of GPUs
    "kernels/host/host_fma.hpp",  # processors differ
    "core/cpu_pause.hpp",  # likewise
    "core/address_sanitizer.hpp",  # whether AddressSanitizer is there is known to the preprocessor alone
]


def include_violations(root):
    found = []
    for path in code_files(root, ["include"]):
        lines = read_lines(root / path)
        if not any(line.strip() == "#pragma once" for line in lines):
            found.append(f"{path}: #pragma once is missing")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, name = match.groups()
            is_ours = name.startswith("gantry/") and quote == "<"
            is_standard = STANDARD_HEADER.match(name) and quote == "<"
            if not is_ours and not is_standard and name != MAY_INCLUDE.get(str(path)):
                found.append(f"{path}:{number}: {line.strip()}: a public header includes <gantry/…> and <standard> only")
    return found


def conditional_violations(root):
    found = []
    for path in code_files(root, ["include", *LAYERS, "launcher"]):
        if any(fnmatch.fnmatch(str(path), pattern) for pattern in MAY_BE_CONDITIONAL):
            continue
        for number, line in enumerate(read_lines(root / path), 1):
            if CONDITIONAL.match(line):
                found.append(f"{path}:{number}: {line.strip()}: conditional compilation has no place here")
    return found


def violations(root):
    return include_violations(root) + conditional_violations(root)


if __name__ == "__main__":
    run_check(__doc__, violations)
