"""Plants the faults of tests/mutants one by one, and names those that no test notices.

A fault is planted in a copy of the sources, never in this tree. The copy and its build stay for the next run. A mutant
is killed when one of its tests fails, or takes ten times as long as without the fault. The exit code is 1 if fewer than
95 % of all mutants are killed or fewer than 85 % of a layer, and 2 after an error of the lists.
"""

import argparse
import hashlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import lists
from workspace import BuildError, Workspace, names_in

MIN_RATE = 0.95
MIN_LAYER_RATE = 0.85
LIMIT_FACTOR = 10
# A test without a fault. Those that take longer have no place in the lists.
BASELINE_LIMIT_S = 300


class BaselineError(Exception):
    """A test that does not pass without a fault."""


class Baseline:
    """How long the tests take without a fault; measured once, where a mutant first names them."""

    def __init__(self, workspace, least_limit):
        self.workspace = workspace
        self.least_limit = least_limit
        self.seconds = {}

    def measure(self, tests):
        missing = [test for test in tests if test not in self.seconds]
        if not missing:
            return
        self.workspace.compile(missing)
        for test in missing:
            result, seconds, output = self.workspace.run_test(test, BASELINE_LIMIT_S)
            if result != "passed":
                raise BaselineError(f"{test}: {result} without a fault\n{output[-3000:]}")
            self.seconds[test] = seconds

    def limit(self, test):
        return max(self.least_limit, LIMIT_FACTOR * self.seconds[test])


def tests_of(mutant, test_names):
    """Names of a mutant's tests, in the order of its patterns."""
    tests = []
    for pattern in mutant.tests:
        tests += [name for name in lists.matching(pattern, test_names) if name not in tests]
    return tests


def run_mutant(workspace, baseline, mutant, tests):
    """Result: a row of the report."""
    row = {"layer": mutant.layer, "name": mutant.name, "file": mutant.file, "result": "survived"}
    try:
        baseline.measure(tests)
        with workspace.mutated(mutant):
            for test in tests:
                workspace.compile([test])
                result, seconds, _ = workspace.run_test(test, baseline.limit(test))
                if result in ("failed", "hang"):
                    seconds = round(seconds, 2)
                    return {**row, "result": "killed", "test": test, "seconds": seconds, "hang": result == "hang"}
    except (BaselineError, BuildError) as error:
        return {**row, "result": "error", "output": str(error)}
    return row


def describe(row, mutant):
    """A line on a finished mutant, and more on one that needs a reader."""
    head = f"{row['layer']:<12} {row['result']:<9}"
    if row["result"] == "killed":
        how = "hang of " if row["hang"] else ""
        return f"{head} {row['seconds']:6.1f} s  {how}{row['test']}: {row['name']}"
    if row["result"] == "error":
        return f"{head} {row['name']}\n{row['output']}"
    why = mutant.survives or "unexplained"
    return f"{head} {row['name']} ({row['file']})\n  breaks: {mutant.breaks}\n  survives: {why}"


def rates(rows):
    """Killed and all mutants of each layer, and of 'all'."""
    counts = {}
    for row in rows:
        for key in (row["layer"], "all"):
            killed, total = counts.get(key, (0, 0))
            counts[key] = (killed + (row["result"] == "killed"), total + 1)
    return counts


def too_low(counts):
    """Names of what is below its limit."""
    def limit(key):
        return MIN_RATE if key == "all" else MIN_LAYER_RATE
    return [key for key, (killed, total) in counts.items() if killed < limit(key) * total]


def print_summary(rows):
    """Result: the exit code."""
    counts = rates(rows)
    low = too_low(counts)
    print("\nkilled of all")
    for key, (killed, total) in counts.items():
        print(f"  {key:<12} {killed:4} of {total:4}  {killed / total:6.1%}{'  too low' if key in low else ''}")
    if any(row["result"] == "error" for row in rows):
        return 2
    return 1 if low else 0


def write_json(path, rows):
    layers = {key: {"killed": killed, "mutants": total} for key, (killed, total) in rates(rows).items()}
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps({"layers": layers, "mutants": rows}, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def run_all(workspace, mutants, options):
    """Result: the exit code. The file has the mutants that are finished, also while the run goes on."""
    workspace.prepare()
    test_names = names_in(workspace.build)
    if problems := lists.list_problems(workspace.source, mutants, test_names):
        raise lists.ListError("\n".join(problems))
    baseline = Baseline(workspace, options.limit)
    rows = []
    for mutant in mutants:
        rows.append(run_mutant(workspace, baseline, mutant, tests_of(mutant, test_names)))
        print(describe(rows[-1], mutant), flush=True)
        if options.json:
            write_json(options.json, rows)
    return print_summary(rows)


def check(root, build):
    """Result: the exit code. Without a build tree the tests are those that the CMake files name."""
    mutants = lists.read_lists(root)
    names = names_in(build) if build else lists.registered_tests(root)
    problems = lists.list_problems(root, mutants, names)
    for problem in problems:
        print(problem)
    print(f"{len(mutants)} mutants, {len(problems)} problem(s)")
    return 2 if problems else 0


def default_jobs(root):
    return int(subprocess.run([root / "scripts" / "jobs"], capture_output=True, check=True).stdout)


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def sample(mutants, count, seed):
    """At most count mutants of each layer: the first of all layers, the second of all, and so on.

    An entry that is new in a list displaces at most one other.
    """
    def rank(mutant):
        return hashlib.sha256(f"{seed} {mutant.layer} {mutant.name}".encode()).digest()
    layers = [sorted(group, key=rank)[:count] for _, group in itertools.groupby(mutants, lambda mutant: mutant.layer)]
    return [mutant for turn in itertools.zip_longest(*layers) for mutant in turn if mutant]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    add = parser.add_argument
    add("--layer", help="only the mutants of this layer")
    add("--name", metavar="REGEX", help="only the mutants with such a name")
    add("--sample", metavar="N", type=positive, help="N mutants of each layer, which --seed draws, one of each in turn")
    add("--seed", default="1", help="any text (1); a larger sample of the same seed has the smaller one")
    add("--build", metavar="DIR", type=pathlib.Path,
        help="the folder of the copy and its build (build/mutants); with --check a build tree whose tests count")
    add("--preset", default="sim", help="of the build (sim); auto finds in ccache what build/auto has compiled")
    add("--jobs", metavar="N", type=int, help="compilers at once (what scripts/jobs says)")
    add("--limit", metavar="SECONDS", type=float, default=20, help="what a test may take in any case (20)")
    add("--json", metavar="FILE", type=pathlib.Path, help="writes the results here, too")
    add("--list", action="store_true", help="prints the mutants, and runs none")
    add("--check", action="store_true", help="compares the lists with sources and names of tests, and runs none")
    add("--root", metavar="DIR", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2],
        help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def selected(options):
    mutants = [mutant for mutant in lists.read_lists(options.root)
               if options.layer in (None, mutant.layer) and re.search(options.name or "", mutant.name)]
    if not mutants:
        raise lists.ListError("no mutant is selected")
    return sample(mutants, options.sample, options.seed) if options.sample else mutants


def run(options):
    if options.check:
        return check(options.root, options.build)
    mutants = selected(options)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.layer:<12} {mutant.file}: {mutant.name}")
        return 0
    folder = (options.build or options.root / "build" / "mutants").resolve()
    jobs = options.jobs or default_jobs(options.root)
    return run_all(Workspace(options.root, folder, options.preset, jobs), mutants, options)


def main(arguments=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, and so restores the source
    try:
        return run(parse(arguments))
    except (lists.ListError, BuildError) as error:
        print(f"scripts/mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
