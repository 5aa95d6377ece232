#!/usr/bin/env python3
"""Measures the collectives on this machine beside their peers, records a run, or writes docs/performance.md.

Usage: measure.py BUILD OUT --ranks N [--steps tune nccl any registered local comm alloc ready] [--begin 4K] [--end 256M] [--quick]
       measure.py record OUT        the figures of a run, with machine, date and commands, to benchmarks/results
       measure.py page [--check]    docs/performance.md from benchmarks/results; --check compares only
       measure.py pictures BUILD [--check]    the pictures of collectives in docs/pictures, from benchmarks/results

  tune        the table of algorithms for N ranks, which the next steps use: OUT/table.json
  nccl        NCCL, plain memory and symmetric windows: OUT/nccl.json
  any         Communicator, memory as it comes: OUT/any.json, any.svg (beside NCCL, if that was measured)
  registered  Communicator, registered memory: OUT/registered.json, registered.svg
  local       Communicator, all ranks in one process, memory as it comes: OUT/local.json, local.svg
  comm        comm::* in one process beside torch.cuda.comm: OUT/comm.md
  alloc       the allocator on one GPU beside PyTorch and cudaMallocAsync, by alloc_peers.py: OUT/alloc.json
  ready       how long Communicator::world() and split take, under glaunch and mpirun

What is printed is in OUT/STEP.txt, and OUT/tables.md joins the results. A step whose program was not built, or whose
peer is not there, is left out.

A program that crashes, is refused or prints nothing for --silence seconds does not take other rows with it: its work is
split until the rows that fail are alone, and they are named in the results. Wrong elements are shown where the time
would be. Exit code 1 if a step or a row of gantry failed or was wrong; a peer's is reported only.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import recorded_run
import result_pictures
import results_page
import supervised_run

HERE = pathlib.Path(__file__).resolve().parent
STEPS = ["tune", "nccl", "any", "registered", "local", "comm", "alloc", "ready"]
OPERATIONS = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all",
              "send_recv"]  # and barrier, which has no size
FACTOR = 4
MODES = {"eager": [], "graph": ["-G", "8", "--graph-only"]}


def sizes_between(begin, end):
    """Sizes such as "4K", as gantry-bench has them."""
    def parse(text):
        number = text.rstrip("iB")
        unit = "KMG".find(number[-1].upper()) + 1
        return int(number[:-1] if unit else number) << 10 * unit

    sizes = [parse(begin)]
    while sizes[-1] * FACTOR <= parse(end):
        sizes.append(sizes[-1] * FACTOR)
    return sizes


class Machine:
    def __init__(self, args):
        self.build = args.build
        self.bin = args.build / "bin"
        self.out = args.out
        self.silence = args.silence
        self.most_failures = args.most_failures
        self.ranks = str(args.ranks)
        self.mpirun = ["mpirun", "--oversubscribe", "-n", self.ranks]
        self.sizes = sizes_between(args.begin, args.end)
        self.rounds = ["-n", "4", "--batches", "3", "--max-seconds", "0.02"] if args.quick else [
            "-n", "8", "--batches", "7", "--max-seconds", "0.05"]
        self.is_quick = args.quick
        self.failed = []
        self.environment = dict(os.environ, NCCL_NVLS_ENABLE="0")  # multicast stays off
        self.is_simulated = "GANTRY_SIM_DEVICES" in os.environ

    def start(self, step, command, stdout=None):
        """Runs a command of a step; its output goes to the step's file, or where `stdout` says."""
        with open(self.out / f"{step}.txt", "a", encoding="utf-8") as log:
            table = self.environment.get("GANTRY_COLL_TABLE")
            log.write(f"$ {f'GANTRY_COLL_TABLE={table} ' if table else ''}{shlex.join(map(str, command))}\n")
            log.flush()
            begin = time.monotonic()
            outcome = supervised_run.run(command, log, self.silence, self.environment, stdout)
        text = outcome.cause or (f"exit code {outcome.code}" if outcome.code else "")
        print(f"{step}: {time.monotonic() - begin:.0f} s" + (f", {text}, see {log.name}" if text else ""), flush=True)
        return outcome

    def fail(self, step):
        if step not in self.failed:
            self.failed.append(step)

    def run(self, step, command, stdout=None):
        """As start; True if the command succeeded, else the step failed."""
        done = self.start(step, command, stdout).code == 0
        if not done:
            self.fail(step)
        return done

    def has(self, step, program):
        if (self.bin / program).exists():
            return True
        print(f"{step}: left out, as {program} was not built", flush=True)
        return False

    def tune(self):
        table = self.out / "table.json"
        sizes = ["-b", self.sizes[0], "-e", self.sizes[-1], "-f", FACTOR]
        if self.run("tune", [*self.mpirun, self.bin / "gantry-tune", *sizes, *self.rounds, "--blocks", "16,32,64",
                             "-J", self.out / "tune.json", "-O", table]):
            self.environment["GANTRY_COLL_TABLE"] = str(table)

    def rows(self, step, program, variants, start=None):
        """Measures all operations and sizes; `variants`: the options of each. Returns how many rows are bad, or None.

        `start` begins the command; mpirun, if it is None.
        """
        start = self.mpirun if start is None else start

        def run_part(part, path):
            modes = MODES["graph"] if part["mode"] == ["graph"] else ["-G", "8"] if "graph" in part["mode"] else []
            chosen = [option for variant in part["variant"] for option in variants[variant]]
            return self.start(step, [*start, self.bin / program, "-o", ",".join(part["operation"]),
                                     "-b", part["bytes"][0], "-e", part["bytes"][-1], "-f", FACTOR, *self.rounds,
                                     *modes, *chosen, "-J", path])

        folder = self.out / "parts" / step
        folder.mkdir(parents=True)
        search = supervised_run.RowSearch(run_part, folder, self.most_failures)
        all_rows = {"operation": OPERATIONS, "variant": list(variants), "bytes": self.sizes, "mode": list(MODES)}
        search.measure(all_rows)
        search.measure({**all_rows, "operation": ["barrier"], "bytes": [0]})
        report = search.result()
        if report is None:
            print(f"{step}: nothing was measured: {search.failures[0]['cause']}", flush=True)
            return None
        (self.out / f"{step}.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        wrong = sum(1 for row in report["rows"] if row["wrong"])
        if wrong:
            print(f"{step}: {wrong} rows with wrong elements, see tables.md", flush=True)
        if report["failures"]:
            print(f"{step}: {len(report['failures'])} rows failed, see tables.md", flush=True)
        return wrong + len(report["failures"])

    def nccl(self):
        if self.is_simulated:
            print("nccl: left out, as the devices are simulated", flush=True)
        elif self.has("nccl", "peer_nccl"):
            self.rows("nccl", "peer_nccl", {name: [f"--variant={name}"] for name in ("default", "symmetric")})

    def gantry(self, step, extra, variant="auto", start=None):
        bad = self.rows(step, "gantry-bench", {variant: extra}, start)
        if bad != 0:
            self.fail(step)
        if bad is None:
            return
        peer = self.out / "nccl.json"
        self.run(step, [self.bin / "gantry-bench", "--draw", self.out / f"{step}.json", "--svg", self.out / f"{step}.svg",
                        *(["--compare", peer] if peer.exists() else [])])

    def any(self):
        self.gantry("any", [])

    def registered(self):
        self.gantry("registered", ["--register"], "auto registered")

    def local(self):
        self.gantry("local", ["-g", self.ranks], start=[])

    def bench_comm(self, path):
        """gantry's own single-process operations, one by one if they do not run together; False if none ran."""
        def measure(pattern):
            with open(path, "w", encoding="utf-8") as file:
                arguments = [f"--benchmark_filter={pattern}", "--benchmark_min_time=0.05", "--benchmark_format=json"]
                outcome = self.start("comm", [self.bin / "bench", *arguments], file)
            try:
                return json.loads(path.read_text(encoding="utf-8")) if outcome.code == 0 else None
            except ValueError:
                return None

        if measure("comm/") is not None:
            return True
        self.fail("comm")
        listed = subprocess.run([self.bin / "bench", "--benchmark_list_tests", "--benchmark_filter=comm/"], text=True,
                                env=self.environment, capture_output=True, check=False).stdout
        results = [measure(f"^{name}$") for name in listed.split()]
        results = [result for result in results if result is not None]
        if not results:
            return False
        benchmarks = [row for result in results for row in result["benchmarks"]]
        path.write_text(json.dumps({"context": results[0]["context"], "benchmarks": benchmarks}), encoding="utf-8")
        return True

    def comm(self):
        ours, peer = self.out / "comm.json", self.out / "torch.json"
        if not self.has("comm", "bench") or not self.bench_comm(ours):
            return
        asks = [sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]
        if self.is_simulated or subprocess.run(asks, capture_output=True, check=False).returncode:
            print("comm: without its peer, as there is no PyTorch with CUDA devices", flush=True)
            return
        with open(peer, "w", encoding="utf-8") as file:
            outcome = self.start("comm", [sys.executable, HERE / "peer_torch.py"], file)
        if outcome.code != 0:
            cause = outcome.cause or supervised_run.cause_of(outcome.code, outcome.tail)
            peer.write_text(json.dumps({"torch": "without results", "results": {}, "failures": {"peer_torch.py": cause}}))
        with open(self.out / "comm.md", "w", encoding="utf-8") as file:
            self.run("comm", [sys.executable, HERE / "compare.py", ours, peer], file)

    def alloc(self):
        if self.is_simulated:
            print("alloc: left out, as the devices are simulated", flush=True)
        elif self.has("alloc", "alloc_peer_gantry") and self.has("alloc", "gantry-replay"):
            self.run("alloc", [sys.executable, HERE / "alloc_peers.py", self.build, *(["--quick"] if self.is_quick else ["--rounds", "7"]),
                               "--work", self.out / "alloc", "--json", self.out / "alloc.json"])

    def ready(self):
        if not self.has("ready", "communicator_ready"):
            return
        for launcher in ([self.bin / "glaunch", "-n", self.ranks], self.mpirun):
            self.run("ready", [*launcher, self.bin / "communicator_ready", "--at", str(int(time.time()) + 15)])

    def tables(self):
        files = [self.out / f"{name}.json" for name in ("registered", "any", "local", "nccl")]
        files = [file for file in files if file.exists()]
        if files:
            with open(self.out / "tables.md", "w", encoding="utf-8") as file:
                self.run("tables", [sys.executable, HERE / "collectives_table.py", *files], file)


def main():
    for name, command in (("page", results_page.main), ("pictures", result_pictures.main), ("record", recorded_run.main)):
        if sys.argv[1:2] == [name]:
            sys.exit(command(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="build tree of gantry")
    parser.add_argument("out", type=pathlib.Path, help="folder of the results, which must be new or empty")
    parser.add_argument("--ranks", type=int, required=True, help="processes, and devices")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--begin", default="4K")
    parser.add_argument("--end", default="256M")
    parser.add_argument("--quick", action="store_true", help="few and short measurements")
    parser.add_argument("--silence", type=float, default=120, help="seconds without output after which a program is stopped")
    parser.add_argument("--most-failures", type=int, default=30, help="runs of a step that may fail before the rest is left out")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if any(args.out.iterdir()):
        sys.exit(f"{args.out}: expected an empty folder")
    recorded_run.write_facts(args.out)
    machine = Machine(args)
    for step in STEPS:
        if step in args.steps:
            getattr(machine, step)()
    machine.tables()
    if machine.failed:
        sys.exit(f"failed: {' '.join(machine.failed)}")


if __name__ == "__main__":
    main()
