"""Fails on a public header or an intricate class without a test of its name.

The test of include/gantry/<layer>/<noun>.hpp and of class <Noun> is <noun>_test.cpp or <noun>_test.py below tests/.
tests_by_name.txt lists the others: each line has a header or class, and the file with its tests.
"""

import re

from source_tree import code_files, read_lines, run_check

CLASSES = ["DeferredFrees", "HeldBlocks", "OomRecovery", "PoolSet", "AddressRange", "ChunkStore", "VectorClock",
           "IpcExporter", "EventLoop", "Supervisor", "Reaper"]
LIST = "tests/checks/tests_by_name.txt"


def noun_of(subject):
    """ "deferred_frees" for DeferredFrees, "dims" for core/dims.hpp."""
    name = subject.rsplit("/", 1)[-1].removesuffix(".hpp")
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def listed(root):
    """The subjects of the list with their files, and complaints about its lines."""
    files = {}
    found = []
    for number, line in enumerate(read_lines(root / LIST), 1):
        if not line or line.startswith("#"):
            continue
        subject, _, path = line.partition(" ")
        files[subject] = path
        if not (root / path).is_file():
            found.append(f"{LIST}:{number}: {path} does not exist")
    return files, found


def violations(root):
    others, found = listed(root)
    headers = [path.as_posix().removeprefix("include/gantry/") for path in code_files(root, ["include/gantry"])]
    tests = {path.stem for path in (root / "tests").rglob("*_test.*")}
    for subject in [*headers, *CLASSES]:
        has_test = f"{noun_of(subject)}_test" in tests
        if subject not in others and not has_test:
            found.append(f"{subject}: no {noun_of(subject)}_test below tests/, and no line in {LIST}")
        if subject in others and has_test:
            found.append(f"{LIST}: {subject} has a test of its name and needs no line")
    for subject in others:
        if subject not in headers and subject not in CLASSES:
            found.append(f"{LIST}: {subject} is no public header and no class of the check")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
