"""Fails on a line of a page that is longer than 120 characters, but for tables, quotes, comments and code."""

import re

from source_tree import read_lines, run_check

MOST = 120
FENCE = re.compile(r"\s*(```|~~~)")
FREE = re.compile(r"\s*(\||>|    )")


def violations(root):
    found = []
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        page = path.relative_to(root).as_posix()
        is_code = is_comment = False
        for number, line in enumerate(read_lines(path), 1):
            is_comment = is_comment or line.lstrip().startswith("<!--")
            if FENCE.match(line) and not is_comment:
                is_code = not is_code
            elif len(line) > MOST and not (is_code or is_comment or FREE.match(line)):
                found.append(f"{page}:{number}: {len(line)} characters, at most {MOST} are allowed")
            is_comment = is_comment and "-->" not in line
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
