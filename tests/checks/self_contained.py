"""Compiles every public header alone."""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys


def compile_alone(compiler, include_dir, header):
    """The compiler's complaints about a translation unit that includes this header only."""
    command = [*compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include_dir}", "-x", "c++", "-"]
    result = subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True, check=False)
    return result.stderr if result.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("include_dir", type=pathlib.Path)
    parser.add_argument("compiler", nargs="+")
    options = parser.parse_args()
    headers = sorted(path.relative_to(options.include_dir) for path in options.include_dir.rglob("*.hpp"))
    if not headers:
        sys.exit(f"{options.include_dir}: no header was found here")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = list(pool.map(lambda header: compile_alone(options.compiler, options.include_dir, header), headers))
    failed = 0
    for header, complaint in zip(headers, complaints):
        if complaint:
            failed += 1
            print(f"--- {header}\n{complaint}")
    print(f"{len(headers)} headers, {failed} of them not self-contained")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
