"""Fails on a row of docs/reference/torch-cuda-map.md that its test does not run, and on an entry of torch that no row has.

A row has three cells: torch's names, gantry's code, the names of tests. Each piece of code stands in one of these tests. A row without code
says in the third cell why there is none. The names are those of tests/checks/torch_map_names.txt.
"""

import re

from source_tree import read_lines, run_check

PAGE = "docs/reference/torch-cuda-map.md"
NAMES = "tests/checks/torch_map_names.txt"
TESTS = "tests/torch_map"
TEST = re.compile(r"^TEST_F\(\s*\w+,\s*(\w+)\)\s*\{", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")
CODE = re.compile(r"`([^`]+)`")
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
    names = {line for line in read_lines(root / NAMES) if line and not line.startswith("#")}
    found += [f"{PAGE}: no row has torch's `{name}`" for name in sorted(names - known)]
    found += [f"{PAGE}: `{name}` is not in {NAMES}" for name in sorted(known - names)]
    found += [f"{TESTS}: no row names test {name}" for name in sorted(bodies.keys() - used)]
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
