"""Fails on a link of a page to a file or heading that does not exist, on a page that no link of the index reaches, and on
a source that names such a page."""

import re

from source_tree import CODE_FOLDERS, CODE_SUFFIXES, code_files, read_lines, run_check

FENCE = re.compile(r"\s*(```|~~~)")
HEADING = re.compile(r"#+\s+(.*?)\s*$")
LINK = re.compile(r"\[[^\[\]]*\]\(([^()\s]+)\)")
PAGE_IN_SOURCE = re.compile(r"\bdocs/[\w/-]+\.md\b")
SOURCE_FOLDERS = [*CODE_FOLDERS, "cmake", "docs"]
SOURCE_SUFFIXES = {*CODE_SUFFIXES, ".py", ".txt", ".cmake", ".in"}
INDEX = "docs/index.md"
EXEMPT = {"tests/checks/checks_test.py", "tests/docs/site_test.py"}
NOT_LINKED = {"docs/doxygen/mainpage.md"}  # the main page of the API reference


def anchor(title):
    """The name that a heading has in links, as GitHub makes it."""
    title = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


class Page:
    """The headings and links of one page, outside of code."""

    def __init__(self, path):
        self.anchors = set()
        self.links = []  # (line, target)
        is_code = False
        lines = read_lines(path)
        for number, line in enumerate(lines, 1):
            if FENCE.match(line):
                is_code = not is_code
            if is_code:
                continue
            if heading := HEADING.match(line):
                self.anchors.add(anchor(heading[1]))
            # The text of a link may begin in the line above.
            before = lines[number - 2] if number > 1 and not FENCE.match(lines[number - 2]) else ""
            for match in LINK.finditer(f"{before}\n{line}"):
                if match.end() > len(before):
                    self.links.append((number, match[1]))


def broken_links(root, name, page, pages):
    for number, target in page.links:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, wanted = target.partition("#")
        path = ((root / name).parent / file).resolve() if file else (root / name).resolve()
        if not path.exists():
            yield f"{name}:{number}: {target}: no such file"
        elif wanted and path in pages and wanted not in pages[path].anchors:
            yield f"{name}:{number}: {target}: no such heading"


def reached(root, pages):
    """The pages that links of the index lead to, and their links."""
    found, pending = set(), [(root / INDEX).resolve()]
    while pending:
        path = pending.pop()
        if path in found or path not in pages:
            continue
        found.add(path)
        pending += [(path.parent / target.partition("#")[0]).resolve() for _, target in pages[path].links]
    return found


def violations(root):
    root = root.resolve()
    pages = {path: Page(path) for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])}
    names = {path: path.relative_to(root).as_posix() for path in pages}
    found = []
    for path, page in pages.items():
        found += broken_links(root, names[path], page, pages)
    if (root / INDEX).exists():
        orphans = set(pages) - reached(root, pages)
        found += [f"{names[path]}:1: no link leads here from {INDEX}" for path in sorted(orphans)
                  if names[path].startswith("docs/") and names[path] not in NOT_LINKED]
    for path in code_files(root, SOURCE_FOLDERS, SOURCE_SUFFIXES):
        name = path.as_posix()
        if name in EXEMPT:
            continue
        for number, line in enumerate(read_lines(root / path), 1):
            found += [f"{name}:{number}: {page}: no such page" for page in PAGE_IN_SOURCE.findall(line)
                      if not (root / page).exists()]
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
