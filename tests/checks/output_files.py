"""Fails on a file that is opened for writing past core/files/output_file.hpp.

Note [Files in folders of other users] says why.
"""

import re

from source_tree import LAYERS, code_files, read_lines, run_check

STREAM = re.compile(r"\bofstream\b|\bstd::fstream\b|\b(?:f|fre)open\s*\(|\bfilebuf\b")
FLAGS = re.compile(r"\bO_(?:WRONLY|CREAT|TRUNC|APPEND)\b")
# Files in folders that only this user can enter, and the functions themselves.
ALLOWED = {
    "core/files/atomic_file.cpp",
    "core/files/output_file.cpp",
    "job/flight_folder.cpp",
    "kernels/jit/file_cache.cpp",
    "kernels/jit/work_folder.cpp",
    "launcher/run/plan/gpu_claims.cpp",
}


def violations(root):
    found = []
    for path in code_files(root, ["include/gantry", *LAYERS, "launcher", "command_line", "tools", "benchmarks"]):
        if path.as_posix() in ALLOWED:
            continue
        for number, line in enumerate(read_lines(root / path), 1):
            code = line.split("//")[0]
            if "/dev/null" not in line and (STREAM.search(code) or FLAGS.search(code)):
                found.append(f"{path}:{number}: {line.strip()}: use open_output() of core/files/output_file.hpp")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
