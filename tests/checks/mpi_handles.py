"""Fails if gantry's MPI module, or a program that hands its communicator to gantry, does not compile with an MPI library
whose handles are of type int. Usage: mpi_handles.py (stand-in|mpich) ROOT COMPILER…

stand-in: the declarations of int_handles/mpi.h. mpich: MPICH's own header; exits with 77 where it is not installed.
"""

import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
# Where distributions keep MPICH's header (libmpich-dev, mpich-devel).
PLACES = ["include/*/mpich", "include/mpich", "include/mpich-*", "lib/*/mpich/include", "lib64/mpich/include"]

PROGRAM = """
#include <gantry/collectives/mpi.hpp>
gantry::Communicator group_of(MPI_Comm comm) { return gantry::Communicator(comm); }
gantry::Communicator group_of(MPI_Comm comm, gantry::Device device) { return gantry::Communicator(comm, device); }
"""


def mpich_include(prefixes=("/usr", "/usr/local")):
    """The folder with MPICH's mpi.h, or None."""
    for prefix in prefixes:
        for place in PLACES:
            for header in sorted(pathlib.Path(prefix).glob(f"{place}/mpi.h")):
                if "MPICH_VERSION" in header.read_text(errors="replace"):
                    return header.parent
    return None


def compiles(compiler, root, include, source):
    command = [*compiler, *WARNINGS, "-I", str(root), "-I", str(root / "include"), "-isystem", str(include), str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        print(f"{source} does not compile with {include}/mpi.h:\n{result.stderr}")
    return result.returncode == 0


def main(arguments):
    mode, root, compiler = arguments[0], pathlib.Path(arguments[1]), arguments[2:]
    include = pathlib.Path(__file__).parent / "int_handles"
    if mode == "mpich":
        include = mpich_include()
        if include is None:
            print("skipped: MPICH's header is not installed (libmpich-dev)")
            return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.cpp"
        program.write_text(PROGRAM)
        sources = [root / "collectives/mpi/module.cpp", program]
        return 0 if all([compiles(compiler, root, include, source) for source in sources]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
