#!/usr/bin/env python3
"""What it costs to start a job: glaunch beside mpirun and torchrun, and how the meeting of ranks grows.

Usage: job_startup.py BUILD [--runs 9] [--ranks 8] [--torchrun "python3 -m torch.distributed.run"]
                            [--sizes 8 64 256 1024] [--worlds 8 64 256 1024] [--record FILE]

  true       RANKS processes that end at once, from the start of the launcher to its end
  world      RANKS processes that make Communicator::world() and end after their first collective
  meet       `rendezvous --meet` with each of --sizes ranks, on up to 16 pretended hosts
  and        `rendezvous --world` with each of --worlds ranks

Launchers run in turns, and the median counts. Devices are simulated. --record writes a file for benchmarks/results.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

import recorded_run
import result_files

HOW = {
    "launch": "seconds from the start of the launcher to its end, median of runs in turns",
    "rendezvous": "seconds from the start of the first rank to the end of the last one, the fastest of three runs",
}


def seconds(command, environment):
    """Time of one run. Exits where it fails."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"job_startup.py: {shlex.join(map(str, command))} ended with code {done.returncode}: {done.stderr[-500:]}")
    return time.perf_counter() - begin


def in_turns(commands, runs, environment):
    """Median seconds of each command."""
    times = {name: [] for name in commands}
    for command in commands.values():  # into the page cache
        seconds(command, environment)
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command, environment))
    return {name: statistics.median(values) for name, values in times.items()}


def launch_rows(args, environment):
    """Rows of the launchers."""
    rows = []
    ranks = str(args.ranks)
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks]
    for name, program in (("true", ["true"]), ("world", [args.build / "bin" / "startup_world"])):
        commands = {"glaunch": [args.build / "bin" / "glaunch", "-n", ranks, *program], "mpirun": [*mpirun, *program]}
        if args.torchrun and name == "true":
            commands["torchrun"] = [*shlex.split(args.torchrun), "--nproc-per-node", ranks, "--no-python", *program]
        found = in_turns(commands, args.runs, environment)
        rows.append({"name": name, "ranks": args.ranks, "gantry_s": recorded_run.rounded(found["glaunch"]),
                     "peers": {peer: {"s": recorded_run.rounded(value), "ratio": recorded_run.rounded(value / found["glaunch"])}
                               for peer, value in found.items() if peer != "glaunch"}})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def rendezvous_rows(args, environment):
    rows = []
    for what, sizes in (("meet", args.sizes), ("world", args.worlds)):
        for ranks in sizes:
            hosts = 16 if ranks >= 64 else 2
            command = [args.build / "bin" / "rendezvous", "--ranks", str(ranks), "--hosts", str(hosts), f"--{what}"]
            runs = []
            for _ in range(3):
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    sys.exit(f"job_startup.py: {shlex.join(map(str, command))}: {done.stderr[-500:]}")
                runs.append(json.loads(done.stdout))
            best = min(runs, key=lambda run: run["seconds"])
            best["start_seconds"] = min(run["start_seconds"] for run in runs)
            rows.append({"name": what, **{key: best[key] if isinstance(best[key], int) else recorded_run.rounded(best[key]) for key in best}})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--torchrun", default="", help="command of torchrun, which is left out without it")
    parser.add_argument("--sizes", type=int, nargs="*", default=[8, 64, 256, 1024])
    parser.add_argument("--worlds", type=int, nargs="*", default=[8, 64, 256, 1024])
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--note", action="append", default=[], help="a reservation about the figures")
    args = parser.parse_args()
    environment = dict(os.environ, GANTRY_SIM_DEVICES=str(args.ranks), OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    rows = launch_rows(args, environment) + rendezvous_rows(args, environment)
    if args.record:
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout.splitlines()[0]
        peers = [version] + (["torchrun of PyTorch"] if args.torchrun else [])
        result = {"schema": result_files.SCHEMA, "kind": "startup", "date": datetime.date.today().isoformat(), "commit": None,
                  "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.release().split('-')[0]}, simulated devices",
                  "devices": args.ranks, "peer": ", ".join(peers), "how": "; ".join(f"{key}: {text}" for key, text in HOW.items()),
                  "commands": ["benchmarks/job_startup.py BUILD"], **({"notes": args.note} if args.note else {}), "rows": rows}
        result_files.check_result(args.record, result)
        args.record.write_text(recorded_run.text_of(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
