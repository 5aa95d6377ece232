"""Fails on a variable of the environment that is read past env::get().

A program with more rights than its caller honours no variable: env::get() knows such programs.
"""

import re

from source_tree import LAYERS, code_files, read_lines, run_check

CALL = re.compile(r"(?<!secure_)\bgetenv\s*\(")


def violations(root):
    found = []
    for path in code_files(root, ["include/gantry", *LAYERS, "compat", "launcher", "command_line", "tools"]):
        for number, line in enumerate(read_lines(root / path), 1):
            if CALL.search(line.split("//")[0]):
                found.append(f"{path}:{number}: {line.strip()}: use env::get()")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
