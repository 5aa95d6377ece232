#!/usr/bin/env python3
"""Runs a recipe by the command behind "// Run:" of its source file. Fails unless it ends with 0.

  run_recipe.py SOURCE FOLDER [--devices 1,2,4,8] [--kills 2] [--gpu]

FOLDER has the program and glaunch. Each number of simulated devices has a run, and 4 devices have another one
with GANTRY_SANITIZER=throw. These two print the comment "// Output:" at the end of the source file.

--kills: one more run, in which ranks get SIGKILL when rank 0 prints. It prints the last line of the comment.
--gpu:   on the GPUs of the machine instead, once; skipped where there is none, or too few.
"""

import argparse
import difflib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

SKIPPED = 77
HAS_GPU = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "has_gpu"
ELASTIC = "1:4"  # stands for one rank for each device
KILLED_STEPS = "2000"  # of a run with kills: long enough for all of them


class Recipe:
    def __init__(self, source, folder, on_gpus):
        text = source.read_text()
        run = re.search(r"^// Run: (.*?)(?:    .*)?$", text, re.MULTILINE)
        _, _, comment = text.partition("\n// Output:\n")
        if run is None or not comment:
            sys.exit(f"{source}: expected comments '// Run:' and '// Output:'")
        self.command = run[1].split()
        self.output = [line.removeprefix("//").removeprefix(" ") for line in comment.splitlines()]
        self.folder = folder
        self.on_gpus = on_gpus

    def start(self, devices, arguments=(), **variables):
        environment = {name: value for name, value in os.environ.items() if name != "GANTRY_SIM_DEVICES"}
        environment |= {"PATH": f"{self.folder}:{environment['PATH']}", **variables}
        if not self.on_gpus:
            environment["GANTRY_SIM_DEVICES"] = str(devices)
        command = [f"1:{devices}" if word == ELASTIC else word for word in self.command] + list(arguments)
        self.scratch = tempfile.TemporaryDirectory()
        print("$", *command, f"({devices} devices {' '.join(variables)})", flush=True)
        return subprocess.Popen(command, env=environment, cwd=self.scratch.name, stdout=subprocess.PIPE, text=True)

    def run(self, devices, **variables):
        process = self.start(devices, **variables)
        printed = process.communicate()[0].splitlines()
        print(*printed, sep="\n", flush=True)
        if process.returncode != 0:
            sys.exit(SKIPPED if process.returncode == SKIPPED else f"exit code {process.returncode}")
        return printed

    def compare(self, printed):
        difference = list(difflib.unified_diff(self.output, printed, "expected", "printed", lineterm=""))
        if difference:
            sys.exit("\n".join(difference))

    def kill_ranks(self, devices, kills):
        process = self.start(devices, [KILLED_STEPS])
        program = str(self.folder / self.command[-1])
        printed, killed = [], 0
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line.rstrip("\n"))
            if killed < kills and printed[-1].startswith("[0] "):
                killed += kill_one_of(ranks_of(process.pid, program))
        last = self.output[-1].replace("200 steps", f"{KILLED_STEPS} steps")
        if process.wait() != 0 or killed < kills or printed[-1] != last:
            sys.exit(f"exit code {process.returncode} after {killed} kills, expected at the end: {last}")


def ranks_of(process, program):
    """The processes below `process` that run `program`."""
    parents = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # the process has ended
    found = []
    for candidate in parents:
        above = candidate
        while above in parents and above != process:
            above = parents[above]
        try:
            if above == process and os.readlink(f"/proc/{candidate}/exe") == program:
                found.append(candidate)
        except OSError:
            continue
    return found


def kill_one_of(processes):
    """Kills one of the processes, and returns 1; 0 if all of them have ended."""
    for process in random.sample(processes, len(processes)):
        try:
            os.kill(process, signal.SIGKILL)
            return 1
        except ProcessLookupError:
            continue
    return 0


def number_of_gpus():
    if subprocess.run([HAS_GPU]).returncode != 0:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True).stdout
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(visible.split(",")) if visible else len(re.findall(r"^GPU ", listed, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--devices", default="1,2,4,8")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--gpu", action="store_true")
    arguments = parser.parse_args()
    recipe = Recipe(arguments.source, arguments.folder, arguments.gpu)
    most = 4
    if arguments.gpu:
        most = number_of_gpus()
        if most == 0 or (most == 1 and ELASTIC in recipe.command):
            sys.exit(SKIPPED)
        recipe.run(most)
    else:
        for devices in arguments.devices.split(","):
            printed = recipe.run(int(devices))
            if devices == "4":
                recipe.compare(printed)
        recipe.compare(recipe.run(4, GANTRY_SANITIZER="throw"))
    if arguments.kills > 0:
        recipe.kill_ranks(most, arguments.kills)


if __name__ == "__main__":
    main()
