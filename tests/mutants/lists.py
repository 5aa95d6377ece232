"""The lists of mutants: small faults of the library, each with the tests that must notice it.

A list is a file <layer>.toml of this folder. Its entries:

    [[mutant]]
    name = "a sentence: the fault"
    breaks = "what a user sees of it"
    file = "streams/event.cpp"
    old = '''text that stands in the file once'''
    new = '''what it becomes'''
    tests = ["event.sim", "stream_clock.*"]   # regular expressions of whole names of tests, the quickest first
    survives = "why no test can notice it"    # optional
"""

import dataclasses
import re
import tomllib

LAYERS = ["core", "machine", "job", "device", "streams", "memory", "snapshots", "ipc", "kernels", "tensor", "collectives",
          "compat", "launcher", "tools"]
KEYS = {"name", "breaks", "file", "old", "new", "tests"}
OPTIONAL_KEYS = {"survives"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    layer: str
    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple
    survives: str = ""


class ListError(Exception):
    """What is wrong with the lists, a line each."""


def list_paths(root):
    return sorted((root / "tests" / "mutants").glob("*.toml"))


def entry_problem(entry):
    """What is wrong with the keys of an entry, or None."""
    keys = set(entry)
    if missing := KEYS - keys:
        return f"no {', '.join(sorted(missing))}"
    if unknown := keys - KEYS - OPTIONAL_KEYS:
        return f"unknown {', '.join(sorted(unknown))}"
    if not entry["tests"]:
        return "no tests"
    return None


def read_list(path):
    """The mutants of one file."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    except tomllib.TOMLDecodeError as error:
        raise ListError(f"{path.name}: {error}") from error
    mutants = []
    for entry in entries:
        if problem := entry_problem(entry):
            raise ListError(f"{path.name}: '{entry.get('name', '?')}': {problem}")
        mutants.append(Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])}))
    return mutants


def read_lists(root):
    """All mutants, in the order of the layers."""
    def place(path):
        return LAYERS.index(path.stem) if path.stem in LAYERS else len(LAYERS)
    return [mutant for path in sorted(list_paths(root), key=place) for mutant in read_list(path)]


FOREACH = re.compile(r"^([ ]*)foreach\((\w+) ([^)]*)\)\n(.*?)^\1endforeach\(", re.MULTILINE | re.DOTALL)


def unroll(text):
    """The text of a CMake file with its loops over literal items written out."""
    def written_out(loop):
        _, variable, items, body = loop.groups()
        return "".join(body.replace(f"${{{variable}}}", item) for item in items.split())
    return FOREACH.sub(written_out, text)


def registered_tests(root):
    """Names of the tests that the CMake files of tests/ register."""
    names = set()
    for path in (root / "tests").rglob("CMakeLists.txt"):
        text = unroll(path.read_text(encoding="utf-8"))
        names |= {f"{noun}.sim" for noun in re.findall(r"gantry_add_test\((?:\w+/)*(\w+)", text)}
        names |= set(re.findall(r"add_test\(NAME ([\w.]+)", text))
    return names


def matching(pattern, names):
    """The names that the pattern of a list matches as a whole, sorted."""
    return sorted(name for name in names if re.fullmatch(pattern, name))


def text_problem(root, mutant):
    """What is wrong with the edit of a mutant, or None."""
    path = root / mutant.file
    if not path.is_file():
        return f"{mutant.file}: no such file"
    if (count := path.read_text(encoding="utf-8").count(mutant.old)) != 1:
        return f"{mutant.file} has its old text {count} times"
    if mutant.old == mutant.new:
        return "the edit changes nothing"
    return None


def list_problems(root, mutants, test_names):
    """What is wrong with the mutants, a sentence each."""
    problems = []
    seen = set()
    for mutant in mutants:
        where = f"tests/mutants/{mutant.layer}.toml: '{mutant.name}'"
        if mutant.layer not in LAYERS:
            problems.append(f"{where}: no layer is called {mutant.layer}")
        if mutant.name in seen:
            problems.append(f"{where}: another mutant has this name")
        seen.add(mutant.name)
        if problem := text_problem(root, mutant):
            problems.append(f"{where}: {problem}")
        problems += [f"{where}: no test is called {test}" for test in mutant.tests if not matching(test, test_names)]
    return problems


def violations(root):
    """What the check of the source text reports."""
    try:
        return list_problems(root, read_lists(root), registered_tests(root))
    except ListError as error:
        return [f"tests/mutants/{error}"]
