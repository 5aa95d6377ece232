#!/usr/bin/env python3
"""Measures the collectives on this machine beside their peers, as docs/performance.md has them.

Usage: measure.py BUILD OUT --ranks N [--steps tune nccl any registered comm ready] [--begin 4K] [--end 256M] [--quick]

  tune        the table of algorithms for N ranks, which the next steps use: OUT/table.json
  nccl        NCCL, plain memory and symmetric windows: OUT/nccl.json
  any         Communicator, memory as it comes: OUT/any.json, any.svg (beside NCCL, if that was measured)
  registered  Communicator, registered memory: OUT/registered.json, registered.svg
  comm        comm::* in one process beside torch.cuda.comm: OUT/comm.md
  ready       how long Communicator::world() and split take, under glaunch and mpirun

What is printed is in OUT/STEP.txt, and OUT/tables.md joins the results. A step whose program was not built, or whose
peer is not there, is left out. Exit code 1 if a step failed or a result was wrong.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = ["tune", "nccl", "any", "registered", "comm", "ready"]


class Machine:
    def __init__(self, args):
        self.bin = args.build / "bin"
        self.out = args.out
        self.ranks = str(args.ranks)
        self.mpirun = ["mpirun", "--oversubscribe", "-n", self.ranks]
        sizes = ["-b", args.begin, "-e", args.end, "-f", "4"]
        rounds = ["-n", "4", "--batches", "3", "--max-seconds", "0.02"] if args.quick else [
            "-n", "8", "--batches", "7", "--max-seconds", "0.05"]
        self.options = sizes + rounds
        self.failed = []
        self.environment = dict(os.environ, NCCL_NVLS_ENABLE="0")  # multicast stays off
        self.is_simulated = "GANTRY_SIM_DEVICES" in os.environ

    def run(self, step, command, stdout=None):
        """Runs a command of a step; its output goes to the step's file, or where `stdout` says."""
        log = self.out / f"{step}.txt"
        with open(log, "a", encoding="utf-8") as text:
            text.write(f"$ {' '.join(map(str, command))}\n")
            text.flush()
            begin = time.monotonic()
            done = subprocess.run(command, stdout=stdout or text, stderr=text, env=self.environment, check=False)
            code = done.returncode
        print(f"{step}: {time.monotonic() - begin:.0f} s" + (f", exit code {code}, see {log}" if code else ""), flush=True)
        if code and step not in self.failed:
            self.failed.append(step)
        return code == 0

    def has(self, step, program):
        if (self.bin / program).exists():
            return True
        print(f"{step}: left out, as {program} was not built", flush=True)
        return False

    def tune(self):
        table = self.out / "table.json"
        if self.run("tune", [*self.mpirun, self.bin / "gantry-tune", *self.options, "--blocks", "16,32,64",
                             "-J", self.out / "tune.json", "-O", table]):
            self.environment["GANTRY_COLL_TABLE"] = str(table)

    def nccl(self):
        if self.is_simulated:
            print("nccl: left out, as the devices are simulated", flush=True)
        elif self.has("nccl", "peer_nccl"):
            self.run("nccl", [*self.mpirun, self.bin / "peer_nccl", "-o", "all", *self.options, "-G", "8",
                              "-J", self.out / "nccl.json"])

    def gantry(self, step, extra):
        command = [*self.mpirun, self.bin / "gantry-bench", "-o", "all", *self.options, "-G", "8", *extra,
                   "-J", self.out / f"{step}.json", "--svg", self.out / f"{step}.svg"]
        peer = self.out / "nccl.json"
        if peer.exists():
            command += ["--compare", peer]
        self.run(step, command)

    def any(self):
        self.gantry("any", [])

    def registered(self):
        self.gantry("registered", ["--register"])

    def comm(self):
        ours, peer = self.out / "comm.json", self.out / "torch.json"
        with open(ours, "w", encoding="utf-8") as file:
            arguments = ["--benchmark_filter=comm/", "--benchmark_min_time=0.05", "--benchmark_format=json"]
            if not self.has("comm", "bench") or not self.run("comm", [self.bin / "bench", *arguments], file):
                return
        asks = [sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]
        if self.is_simulated or subprocess.run(asks, capture_output=True, check=False).returncode:
            print("comm: without its peer, as there is no PyTorch with CUDA devices", flush=True)
            return
        with open(peer, "w", encoding="utf-8") as file:
            if not self.run("comm", [sys.executable, HERE / "peer_torch.py"], file):
                return
        with open(self.out / "comm.md", "w", encoding="utf-8") as file:
            self.run("comm", [sys.executable, HERE / "compare.py", ours, peer], file)

    def ready(self):
        if not self.has("ready", "communicator_ready"):
            return
        for launcher in ([self.bin / "glaunch", "-n", self.ranks], self.mpirun):
            self.run("ready", [*launcher, self.bin / "communicator_ready", "--at", str(int(time.time()) + 15)])

    def tables(self):
        files = [self.out / f"{name}.json" for name in ("registered", "any", "nccl")]
        files = [file for file in files if file.exists()]
        if files:
            with open(self.out / "tables.md", "w", encoding="utf-8") as file:
                self.run("tables", [sys.executable, HERE / "collectives_table.py", *files], file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="build tree of gantry")
    parser.add_argument("out", type=pathlib.Path, help="folder of the results, which must be new or empty")
    parser.add_argument("--ranks", type=int, required=True, help="processes, and devices")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--begin", default="4K")
    parser.add_argument("--end", default="256M")
    parser.add_argument("--quick", action="store_true", help="few and short measurements")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if any(args.out.iterdir()):
        sys.exit(f"{args.out}: expected an empty folder")
    machine = Machine(args)
    for step in STEPS:
        if step in args.steps:
            getattr(machine, step)()
    machine.tables()
    if machine.failed:
        sys.exit(f"failed: {' '.join(machine.failed)}")


if __name__ == "__main__":
    main()
