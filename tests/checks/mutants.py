"""Fails on a mutant of tests/mutants whose text or tests are no longer there: scripts/mutants could not run it."""

import pathlib
import sys

from source_tree import run_check

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "mutants"))
import lists  # noqa: E402

if __name__ == "__main__":
    run_check(__doc__, lists.violations)
