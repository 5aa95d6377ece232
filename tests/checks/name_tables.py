"""Fails on code in a table of names that no program of its section runs.

The first cell of a row has another library's names, the second gantry's. Each piece of code in the second cell stands in a C++ block of the
section, where docs.* compiles and runs it. A section without such a block is free: it has commands and advice.
"""

import re

from source_tree import read_lines, run_check

PAGES = ("docs/how-to/from-libtorch.md",)
COMMENT = re.compile(r"//.*")
CODE = re.compile(r"`([^`]+)`")
RULE = re.compile(r"\|[-:| ]+\|")


def squeeze(text):
    return re.sub(r"\s+", "", text)


def sections(lines):
    """Of each section, its rows as (number, second cell), and its C++ code without white space."""
    rows, code, fence = [], "", None
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence == "cpp":
            code += squeeze(COMMENT.sub("", line))
        elif fence is None and line.startswith("#"):
            yield rows, code
            rows, code = [], ""
        elif fence is None and line.startswith("|"):
            rows.append((number, line.strip("|").split("|")[1]))
            if RULE.fullmatch(line):
                del rows[-2:]  # the head of the table
    yield rows, code


def violations(root):
    found = []
    for page in PAGES:
        if not (root / page).exists():
            continue
        for rows, code in sections(read_lines(root / page)):
            found += [f"{page}:{number}: no program of the section has `{piece}`"
                      for number, cell in rows if code for piece in CODE.findall(cell) if squeeze(piece) not in code]
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
