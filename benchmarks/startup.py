#!/usr/bin/env python3
"""What libgantry costs a program before main(): time to start, size, and the libraries that it loads.

Usage: startup.py BUILD [--runs N]

An empty program runs in turns with the same program linked to libgantry, N times each (default 200). A line shows the
medians of both and their difference. The programs never reach a device.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time


def milliseconds(program):
    """Time of one run of `program`, from fork to exit."""
    begin = time.perf_counter()
    process = os.posix_spawn(program, [str(program)], {"PATH": os.environ.get("PATH", ""), "GANTRY_SIM_DEVICES": "4"})
    _, status = os.waitpid(process, 0)
    if status != 0:
        sys.exit(f"startup.py: failed to run {program}: wait status {status}")
    return (time.perf_counter() - begin) * 1e3


def needed(library):
    """The libraries that the loader must find for `library` itself."""
    lines = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()

    programs = {name: args.build / "bin" / f"startup_{name}" for name in ("empty", "gantry")}
    times = {name: [] for name in programs}
    for program in programs.values():  # into the page cache
        milliseconds(program)
    for _ in range(args.runs):
        for name, program in programs.items():
            times[name].append(milliseconds(program))
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"start to exit, median of {args.runs}: empty {median['empty']:.2f} ms, with libgantry {median['gantry']:.2f} ms, "
          f"difference {median['gantry'] - median['empty']:.2f} ms")

    library = next(iter(sorted(args.build.glob("lib*/libgantry.so.*.*.*"))), None)
    if library is None:
        print("libgantry is an archive in this build")
        return
    stripped = pathlib.Path(f"{library}.stripped")
    try:
        subprocess.run(["strip", "--strip-all", "-o", stripped, library], check=True)
        print(f"size: {library.stat().st_size / 1e6:.1f} MB, stripped {stripped.stat().st_size / 1e6:.1f} MB")
    finally:
        stripped.unlink(missing_ok=True)
    print("needs: " + " ".join(needed(library)))


if __name__ == "__main__":
    main()
