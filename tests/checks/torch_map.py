"""Fails on a row of docs/reference/torch-cuda-map.md that its test does not run, and on an entry of torch that no row has.

A row has three cells: torch's names, gantry's code, the names of tests. Each piece of code stands in one of these tests. A row without code
says in the third cell why there is none. The names are listed in tests/checks/torch_map_names.txt, whose first line has torch's version: a
newer torch on this machine may have more.
"""

import importlib.metadata

import re

from source_tree import read_lines, run_check

PAGE = "docs/reference/torch-cuda-map.md"
NAMES = "tests/checks/torch_map_names.txt"
TESTS = "tests/torch_map"
TEST = re.compile(r"^TEST_F\(\s*\w+,\s*(\w+)\)\s*\{", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")
CODE = re.compile(r"`([^`]+)`")
VERSION = re.compile(r"(\d+)\.(\d+)")
SENTENCE = re.compile(r"\S.* .*\.$")


def squeeze(text):
    return re.sub(r"\s+", "", text)


def test_bodies(root):
    """The text of each test, without comments and white space."""
    bodies = {}
    for path in sorted((root / TESTS).glob("*.cpp")):
        text = COMMENT.sub("", path.read_text(encoding="utf-8"))
        found = list(TEST.finditer(text))
        for test, following in zip(found, [*found[1:], None]):
            bodies[test[1]] = squeeze(text[test.end():following.start() if following else len(text)])
    return bodies


def complaint(code, last_cell, bodies):
    """What is wrong with the second and third cell of a row, or None."""
    if not code:
        return None if SENTENCE.match(last_cell) else "a row without code needs a sentence that says why"
    tests = [name.strip() for name in last_cell.split(",")]
    for name in tests:
        if name not in bodies:
            return f"there is no test {name} in {TESTS}"
    for piece in code:
        if not any(squeeze(piece) in bodies[name] for name in tests):
            return f"`{piece}` does not stand in test {last_cell}"
    return None


def installed_torch():
    """Version of the torch that this Python has, or None."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def age_complaint(first_line, installed):
    """What is wrong with the age of the list, or None."""
    newer, listed = (VERSION.search(text or "") for text in (installed, first_line))
    if newer is None:
        return None
    if listed is None:
        return f"{NAMES}:1: expected the version of torch whose names these are; this machine has {installed}"
    if tuple(map(int, newer.groups())) <= tuple(map(int, listed.groups())):
        return None
    return f"{NAMES}:1: the names are those of torch {listed[0]}, but this machine has {installed}; add what is new in torch.cuda.__all__"


def violations(root):
    if not (root / PAGE).exists():
        return []
    bodies = test_bodies(root)
    found, known, used = [], set(), set()
    for number, line in enumerate(read_lines(root / PAGE), 1):
        if not line.startswith("| `"):
            continue
        torch, gantry, last = (cell.strip() for cell in line.strip("|").split("|"))
        known.update(CODE.findall(torch))
        code = [piece for piece in CODE.findall(gantry)]
        problem = complaint(code, last, bodies)
        used.update(name.strip() for name in last.split(",") if code)
        if problem:
            found.append(f"{PAGE}:{number}: {problem}")
    lines = read_lines(root / NAMES)
    if problem := age_complaint(lines[0] if lines else "", installed_torch()):
        found.append(problem)
    names = {line for line in lines if line and not line.startswith("#")}
    found += [f"{PAGE}: no row has torch's `{name}`" for name in sorted(names - known)]
    found += [f"{PAGE}: `{name}` is not in {NAMES}" for name in sorted(known - names)]
    found += [f"{TESTS}: no row names test {name}" for name in sorted(bodies.keys() - used)]
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
