"""Fails on a figure of README.md that docs/performance.md does not have, and on a figure without a row, a machine and a date.

A figure is a bold factor in a list item: **1.80 ×**. The item links the row of the page that has it, [all_reduce, 64 KiB](docs/performance.md#…),
and ends with the file of results in words: (4 × H200, 2026-11-29) is a file 2026-11-29-4xh200-… that the page names.
"""

import re

from source_tree import read_lines, run_check

README = "README.md"
PAGE = "docs/performance.md"
FIGURE = re.compile(r"\*\*([\d.,]+) ×\*\*")
ROW = re.compile(r"\[([^\]]+)\]\(docs/performance\.md#[^)]+\)")
SOURCE = re.compile(r"\((\d+) (?:× )?(\w+), (\d{4}-\d\d-\d\d)\)")


def items(lines):
    """The list items, as (number of the first line, text)."""
    number, text = 0, ""
    for at, line in enumerate([*lines, ""], 1):
        if text and not line.startswith("  "):
            yield number, text
            text = ""
        if line.startswith("- "):
            number, text = at, line
        elif text:
            text += " " + line.strip()


def rows(lines):
    """Of each name in the first column, the factors in its rows: the first word of each cell."""
    found = {}
    for line in lines:
        if line.startswith("| "):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found.setdefault(name, set()).update(cell.split()[0] for cell in cells if cell)
    return found


def complaints(text, table, page):
    """What is wrong with one list item that has figures."""
    figures, names, sources = FIGURE.findall(text), ROW.findall(text), SOURCE.findall(text)
    if len(names) != 1 or len(sources) != 1:
        return ["a figure needs one link to a row, and one machine with a date"]
    count, kind, date = sources[0]
    file = f"{date}-{count}{'cpu' if kind == 'CPUs' else 'x' + kind.lower()}-"
    found = [] if f"[{file}" in page else [f"{PAGE} names no file {file}…"]
    return found + [f"row '{names[0]}' of {PAGE} has no {figure}" for figure in figures if figure not in table.get(names[0], ())]


def violations(root):
    if not (root / README).exists() or not (root / PAGE).exists():
        return []
    lines = read_lines(root / README)
    page = read_lines(root / PAGE)
    table, text_of_page = rows(page), "\n".join(page)
    found = [f"{README}:{number}: {problem}" for number, text in items(lines) if FIGURE.search(text)
             for problem in complaints(text, table, text_of_page)]
    in_items = sum(len(FIGURE.findall(text)) for _, text in items(lines))
    if len(FIGURE.findall("\n".join(lines))) != in_items:
        found.append(f"{README}: a figure stands outside of the list items")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
