"""Fails on a code file of more than 500 lines: a file is one noun."""

from source_tree import CODE_FOLDERS, CODE_SUFFIXES, code_files, read_lines, run_check

MAX_LINES = 500
# One class, whose members are the vocabulary of its users.
LONGER = {"include/gantry/tensor/tensor.hpp": 700}


def violations(root):
    found = []
    folders = [*CODE_FOLDERS, "cmake", "scripts"]
    for path in code_files(root, folders, CODE_SUFFIXES | {".py", ".cmake", ".txt", ".sh", ".html", ".js", ""}):
        lines = len(read_lines(root / path))
        allowed = LONGER.get(str(path), MAX_LINES)
        if lines > allowed:
            found.append(f"{path}: {lines} lines, at most {allowed} are allowed")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
