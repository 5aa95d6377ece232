#!/usr/bin/env python3
"""PyTorch's own tests of process groups, on whatever stands in NCCL's place.

Usage: torch_suite.py run SOURCE OUT [--library PATH] [--jobs N] [--seconds N] [--again FILE [--outcomes fail]] [--files NAME ...]
       torch_suite.py compare NCCL GANTRY

SOURCE is a folder with the files of PyTorch's test/distributed. `run` writes each case's outcome to OUT: ok, skip, fail, hang or
left, and the end of its error. --library stands in NCCL's place. --again takes the cases of another OUT that had one of --outcomes.
`compare` prints how many cases that pass with NCCL pass with gantry, and names the others. Files of PyTorch 2.4 run on 2.11, too.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

FILES = ["test_c10d_nccl", "test_c10d_ops_nccl", "test_c10d_spawn_nccl", "test_c10d_object_collectives", "test_functional_api", "test_nccl",
         "test_data_parallel", "test_distributed_spawn"]
AT_ONCE = 6  # cases of one interpreter, which imports PyTorch once
LONGEST = 100  # seconds of a case


def rename():
    """Gives PyTorch's test helpers the names that its older test files import. Processes of the cases import this file, too."""
    comm_tensor = types.ModuleType("torch.distributed._spmd.comm_tensor")
    comm_tensor._wait_comm = comm_tensor.CommTensor = None
    sys.modules.setdefault("torch.distributed._spmd", types.ModuleType("torch.distributed._spmd"))
    sys.modules.setdefault(comm_tensor.__name__, comm_tensor)
    from torch.testing._internal import common_distributed
    if not hasattr(common_distributed, "MultiProcContinousTest"):
        common_distributed.MultiProcContinousTest = common_distributed.MultiProcContinuousTest
    if not hasattr(common_distributed, "skip_if_rocm"):
        common_distributed.skip_if_rocm = common_distributed.skip_if_rocm_multiprocess


class Outcomes(unittest.TestResult):
    """Writes a line of JSON at the begin and at the end of each case."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.begin = time.monotonic()

    def line(self, **fields):
        print(json.dumps(fields), file=self.file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()
        self.line(case=test.id(), outcome="begins")

    def end(self, test, outcome, text=""):
        self.line(case=test.id(), outcome=outcome, text=text[-600:], seconds=round(time.monotonic() - self.begin, 1))

    def addSuccess(self, test):
        self.end(test, "ok")

    def addSkip(self, test, reason):
        self.end(test, "skip", reason)

    def addFailure(self, test, err):
        self.end(test, "fail", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        self.end(test, "fail", self._exc_info_to_string(err, test))

    def addExpectedFailure(self, test, err):
        self.end(test, "ok")


def cases_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases_of(test)
        else:
            yield test


def inside(module, out, names):
    """One interpreter: lists a module's cases, or runs the named ones."""
    sys.argv = [str(pathlib.Path.cwd() / f"{module}.py")]  # PyTorch refuses cases of other files than the program's
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    wanted = set(names)
    chosen = [test for test in cases_of(suite) if not names or test.id() in wanted]
    with open(out, "a", encoding="utf-8") as file:
        if not names:
            for test in chosen:
                print(json.dumps({"case": test.id(), "outcome": "left"}), file=file)
            return
        unittest.TestSuite(chosen).run(Outcomes(file))


class Runner:
    def __init__(self, source, library, end):
        self.source, self.library, self.end = source, library, end
        self.results, self.lock = {}, threading.Lock()

    def start(self, module, out, names):
        folder = pathlib.Path(tempfile.mkdtemp())
        for name in ("barrier", "test_dir", "init_dir"):
            (folder / name).mkdir()
        environment = dict(os.environ, PYTHONPATH=f"{self.source}:{os.environ.get('PYTHONPATH', '')}", TEMP_DIR=str(folder), BACKEND="nccl",
                           WORLD_SIZE="2", INIT_METHOD=f"file://{folder}/init_dir/shared", NCCL_NVLS_ENABLE="0", OMP_NUM_THREADS="1",
                           DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="60")
        if self.library:
            environment["LD_PRELOAD"] = str(self.library)
        log = open(folder / "log", "w", encoding="utf-8")
        command = [sys.executable, __file__, "inside", module, str(out), *names]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self.source)

    def list_cases(self, module):
        out = tempfile.mktemp()
        self.start(module, out, []).wait()
        return [json.loads(line)["case"] for line in open(out, encoding="utf-8")] if os.path.exists(out) else []

    def run(self, module, names):
        """Runs cases of one module. Behind a case that hangs or ends the interpreter, another interpreter takes the rest."""
        while names and time.monotonic() < self.end:
            out = tempfile.mktemp()
            pathlib.Path(out).touch()
            process = self.start(module, out, names)
            size, since = 0, time.monotonic()
            while process.poll() is None and time.monotonic() < min(self.end, since + LONGEST):
                time.sleep(0.2)
                if os.path.getsize(out) != size:
                    size, since = os.path.getsize(out), time.monotonic()
            hangs = process.poll() is None
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()
            done = {}
            for line in open(out, encoding="utf-8"):
                row = json.loads(line)
                if done.get(row["case"], {}).get("outcome") != "fail":
                    done[row["case"]] = row
            for row in done.values():
                if row["outcome"] == "begins":
                    late = time.monotonic() >= self.end
                    row["outcome"] = "left" if late else "hang" if hangs else "fail"
                    row["text"] = f"the process ended with {process.returncode}"
            with self.lock:
                self.results.update(done)
            names = [name for name in names if name not in done] if done else []


def run(args):
    runner = Runner(args.source.resolve(), args.library, time.monotonic() + args.seconds)
    files = args.files or [name for name in FILES if (args.source / f"{name}.py").exists()]
    wanted = None
    if args.again:
        wanted = {case for case, row in json.loads(args.again.read_text(encoding="utf-8")).items() if row["outcome"] in args.outcomes}
    work, lists = collections.deque(), {}
    listers = [threading.Thread(target=lambda name=name: lists.update({name: runner.list_cases(name)})) for name in files]
    for thread in listers:
        thread.start()
    for thread in listers:
        thread.join()
    for name in files:
        cases = [case for case in lists[name] if wanted is None or case in wanted]
        print(f"{name}: {len(cases)} cases", flush=True)
        runner.results.update({case: {"case": case, "outcome": "left"} for case in cases})
        work.extend((name, cases[first:first + AT_ONCE]) for first in range(0, len(cases), AT_ONCE))

    def serve():
        while time.monotonic() < runner.end:
            try:
                module, names = work.popleft()
            except IndexError:
                return
            runner.run(module, names)

    threads = [threading.Thread(target=serve) for _ in range(args.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    args.out.write_text(json.dumps(runner.results, indent=0), encoding="utf-8")
    print(collections.Counter(row["outcome"] for row in runner.results.values()))


def compare(args):
    nccl, gantry = (json.loads(path.read_text(encoding="utf-8")) for path in (args.nccl, args.gantry))
    files = collections.defaultdict(lambda: [0, 0])
    for case, row in sorted(nccl.items()):
        if row["outcome"] == "ok":
            files[case.split(".")[0]][0] += 1
            if gantry.get(case, {}).get("outcome") == "ok":
                files[case.split(".")[0]][1] += 1
            else:
                print(case, gantry.get(case, {}).get("outcome"), (gantry.get(case, {}).get("text") or "").strip().splitlines()[-1:])
    for name, (passed, also) in files.items():
        print(f"{name}: {also} of {passed}")
    print(f"all: {sum(also for _, also in files.values())} of {sum(passed for passed, _ in files.values())}")


if __name__ in ("__mp_main__",) or sys.argv[1:2] == ["inside"]:
    rename()


def main():
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.set_defaults(function=run)
    runs.add_argument("source", type=pathlib.Path)
    runs.add_argument("out", type=pathlib.Path)
    runs.add_argument("--files", nargs="+")
    runs.add_argument("--library", type=pathlib.Path)
    runs.add_argument("--jobs", type=int, default=8)
    runs.add_argument("--seconds", type=float, default=3600)
    runs.add_argument("--again", type=pathlib.Path)
    runs.add_argument("--outcomes", nargs="+", default=["fail", "hang", "left"])
    compares = commands.add_parser("compare")
    compares.set_defaults(function=compare)
    compares.add_argument("nccl", type=pathlib.Path)
    compares.add_argument("gantry", type=pathlib.Path)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
