#!/usr/bin/env python3
"""measure.py with programs that return wrong elements, crash, hang or refuse: no row is lost for another one's sake.

Usage: measure_test.py BENCHMARKS_FOLDER
"""
import datetime
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

BENCHMARKS = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BENCHMARKS))
import collectives_table  # noqa: E402
import measure  # noqa: E402
import result_files  # noqa: E402
import supervised_run  # noqa: E402

# A program with the options of gantry-bench. BEHAVIOUR says what a row does, by operation, variant, bytes and mode.
FAKE = '''#!{python}
import argparse, json, os, signal, sys, time
parser = argparse.ArgumentParser()
for names in ("-o", "-b", "-e", "-f", "-n", "--batches", "--max-seconds", "-J", "--svg", "--draw", "--compare"):
    parser.add_argument(names)
parser.add_argument("-G", type=int, default=0)
parser.add_argument("-g", type=int, default=0)
parser.add_argument("--graph-only", action="store_true")
parser.add_argument("--register", action="store_true")
parser.add_argument("--variant", action="append", default=[])
args = parser.parse_args()
if args.draw:
    json.load(open(args.draw))
    open(args.svg, "w").write("<svg/>")
    sys.exit(0)
behaviour = json.loads(os.environ.get("BEHAVIOUR_OF_{name}", "[]"))
sizes = [int(args.b)]
while sizes[-1] * int(args.f) <= int(args.e) and sizes[-1] > 0:
    sizes.append(sizes[-1] * int(args.f))
rows = []
for variant in args.variant or ["auto registered" if args.register else "auto"]:
    for operation in args.o.split(","):
        for size in [0] if operation == "barrier" else sizes:
            for mode in ([] if args.graph_only else ["eager"]) + (["graph"] if args.G else []):
                acts = [act for *row, act in behaviour
                        if all(a in ("*", b) for a, b in zip(row, (operation, variant, size, mode)))]
                act = acts[0] if acts else "right"
                print(operation, variant, size, mode, flush=True)
                if act == "crash":
                    os.kill(os.getpid(), signal.SIGSEGV)
                if act == "refuse":
                    print("{name}: no such operation here", file=sys.stderr)
                    sys.exit(2)
                if act == "hang":
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    time.sleep(3600)
                wrong = 7 if act == "wrong" else 0
                rows.append(dict(operation=operation, variant=variant, bytes=size, mode=mode, dtype="f32", redop="-",
                                 wrong=wrong, note="", batches=0 if wrong else 3, p50_us=0 if wrong else {time}))
report = dict(schema="gantry-collectives-1", library="{library}", device="H1", ranks=2, launched_by="mpi", rows=rows)
open(args.J, "w").write(json.dumps(report))
sys.exit(1 if any(row["wrong"] for row in rows) else 0)
'''
# Runs the program once, as a launcher of one rank.
MPIRUN = '#!/bin/sh\nwhile [ "$1" != -n ]; do shift; done\nshift 2\nexec "$@"\n'


class MeasureTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program("mpirun", MPIRUN)
        for name, library, time in (("gantry-bench", "gantry 1", 10), ("peer_nccl", "NCCL 2", 20)):
            self.program(name, FAKE.replace("{python}", sys.executable).replace("{name}", name.replace("-", "_"))
                         .replace("{library}", library).replace("{time}", str(time)))

    def program(self, name, text):
        path = self.folder / "build" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_steps(self, gantry=(), peer=(), steps=("nccl", "any"), silence=120, more=()):
        """Runs measure.py on sizes 4 KiB and 16 KiB; returns its exit code and output."""
        environment = {key: value for key, value in os.environ.items() if key != "GANTRY_SIM_DEVICES"}
        environment["PATH"] = f"{self.folder / 'build' / 'bin'}:{environment['PATH']}"
        environment["CUDA_HOME"] = str(self.folder)  # alloc_peers.py compiles no peers
        environment["BEHAVIOUR_OF_gantry_bench"] = json.dumps(gantry)
        environment["BEHAVIOUR_OF_peer_nccl"] = json.dumps(peer)
        self.out = self.folder / "out"
        done = subprocess.run([sys.executable, BENCHMARKS / "measure.py", self.folder / "build", self.out, "--ranks", "2", "--steps",
                               *steps, "--begin", "4K", "--end", "16K", "--quick", "--silence", str(silence), *more],
                              env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout

    def tables(self):
        return (self.out / "tables.md").read_text()

    def rows(self, step):
        return json.loads((self.out / f"{step}.json").read_text())

    def good_rows(self, step):
        return sum(1 for row in self.rows(step)["rows"] if row["batches"] > 0)

    ALL = len(measure.OPERATIONS) * 2 * 2 + 2  # sizes and modes; and barrier

    def test_all_is_well(self):
        code, output = self.run_steps()
        self.assertEqual(code, 0, output)
        self.assertEqual(self.good_rows("nccl"), 2 * self.ALL)
        self.assertEqual(self.good_rows("any"), self.ALL)
        self.assertIn("| 4 KiB | eager | 10 | 20 | 20 | 2.00 |", self.tables())
        self.assertTrue((self.out / "any.svg").exists())

    def test_wrong_elements_of_a_peer_are_in_the_table(self):
        code, output = self.run_steps(peer=[["all_to_all", "symmetric", 16384, "*", "wrong"]])
        self.assertEqual(code, 0, output)
        self.assertIn("nccl: 2 rows with wrong elements", output)
        self.assertEqual(self.good_rows("nccl"), 2 * self.ALL - 2)
        self.assertIn("| 16 KiB | eager | 10 | 20 | wrong | 2.00 |", self.tables())
        self.assertIn("- NCCL 2 symmetric, 16 KiB, graph: 7 elements are wrong", self.tables())

    def test_a_peer_that_crashes_loses_one_row(self):
        code, output = self.run_steps(peer=[["gather", "symmetric", 16384, "graph", "crash"]])
        self.assertEqual(code, 0, output)
        self.assertIn("nccl: 1 rows failed", output)
        self.assertEqual(self.good_rows("nccl"), 2 * self.ALL - 1)
        self.assertIn("- NCCL 2 symmetric, 16 KiB, graph: crashed with SIGSEGV", self.tables())
        self.assertIn("| 16 KiB | graph | 10 | 20 | failed | 2.00 |", self.tables())

    def test_a_peer_that_hangs_loses_one_row(self):
        code, output = self.run_steps(peer=[["scatter", "default", 4096, "eager", "hang"]], silence=6)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.good_rows("nccl"), 2 * self.ALL - 1)
        self.assertIn("- NCCL 2 default, 4 KiB, eager: printed nothing for 6 s", self.tables())

    def test_a_refusal_keeps_its_reason(self):
        code, output = self.run_steps(peer=[["send_recv", "symmetric", "*", "*", "refuse"]])
        self.assertEqual(code, 0, output)
        self.assertEqual(self.good_rows("nccl"), 2 * self.ALL - 4)
        self.assertIn("failed with exit code 2: peer_nccl: no such operation here", self.tables())

    def test_gantrys_own_errors_fail_and_lose_nothing(self):
        code, output = self.run_steps(gantry=[["reduce", "auto", 4096, "eager", "wrong"], ["barrier", "*", "*", "graph", "crash"]])
        self.assertEqual(code, 1, output)
        self.assertIn("failed: any", output)
        self.assertEqual(self.good_rows("any"), self.ALL - 2)
        self.assertEqual(self.good_rows("nccl"), 2 * self.ALL)
        self.assertIn("- gantry 1 auto, 4 KiB, eager: 7 elements are wrong", self.tables())
        self.assertIn("- gantry 1 auto, 0 B, graph: crashed with SIGSEGV", self.tables())

    def test_a_peer_that_never_works_is_given_up(self):
        code, output = self.run_steps(peer=[["*", "*", "*", "*", "crash"]], more=["--most-failures", "5"])
        self.assertEqual(code, 0, output)
        self.assertIn("nccl: nothing was measured", output)
        self.assertEqual(self.good_rows("any"), self.ALL)
        self.assertIn("| 4 KiB | eager | 10 |", self.tables())

    def test_a_failing_step_loses_no_other(self):
        self.program("gantry-tune", "#!/bin/sh\nexit 3\n")
        code, output = self.run_steps(steps=("tune", "nccl", "any", "registered"))
        self.assertEqual(code, 1, output)
        self.assertIn("failed: tune", output)
        self.assertEqual((self.good_rows("any"), self.good_rows("registered")), (self.ALL, self.ALL))


    def record(self, *more):
        """Records the last run; returns the exit code, the output and the results, oldest first."""
        results = self.folder / "results"
        results.mkdir(exist_ok=True)
        done = subprocess.run([sys.executable, BENCHMARKS / "measure.py", "record", self.out, "--results", results, *more],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout, result_files.read_results(results)

    def test_a_run_is_recorded_with_machine_date_and_commands(self):
        self.program("gantry-tune", "#!/bin/sh\nexit 0\n")
        self.run_steps(steps=("tune", "nccl", "any", "registered", "local"), peer=[["gather", "*", 4096, "graph", "wrong"]])
        (self.out / "comm.json").write_text(json.dumps({"context": {"device": "GPU H1", "devices": "2"}, "benchmarks": [
            {"name": "comm/gather/4/iterations:9", "real_time": 2000, "time_unit": "ns"}, {"name": "x", "real_time": 1, "time_unit": "ns"}]}))
        (self.out / "torch.json").write_text(json.dumps({"torch": "2.0", "results": {"comm/gather/4": 5.0}}))
        (self.out / "comm.txt").write_text(f"$ {self.folder}/build/bin/bench --benchmark_filter=comm/\n"
                                           f"$ {sys.executable} {BENCHMARKS}/peer_torch.py\n")
        code, output, results = self.record("--note", "a busy machine")
        self.assertEqual(code, 0, output)
        collectives, process = results
        today = datetime.date.today().isoformat()
        self.assertEqual([result["name"] for result in results], [f"{today}-2xh1-collectives.json", f"{today}-2xh1-comm.json"])
        self.assertEqual(collectives["date"], today)
        self.assertRegex(collectives["machine"], r"^2 × H1, .*\d+ cores$")
        self.assertEqual((collectives["peer"], collectives["notes"]), ("NCCL 2, multicast off", ["a busy machine"]))
        self.assertEqual(collectives["library"], "gantry 1")
        self.assertIn("GANTRY_COLL_TABLE=table.json mpirun -n 2 gantry-bench -o "
                      f"{','.join(measure.OPERATIONS)} -b 4096 -e 16384 -f 4 -n 4 --batches 3 --max-seconds 0.02 -G 8 --register",
                      collectives["commands"])
        row = {"operation": "all_reduce", "dtype": "f32", "redop": None, "bytes": 4096, "memory": "any", "gantry_us": 10, "peer_us": 20,
               "ratio": 2, "symmetric_us": 20, "symmetric_ratio": 2}
        self.assertIn(row, collectives["rows"])
        self.assertIn({**row, "memory": "registered"}, collectives["rows"])
        self.assertIn({**row, "memory": "one process"}, collectives["rows"])
        self.assertIn(f"GANTRY_COLL_TABLE=table.json gantry-bench -o {','.join(measure.OPERATIONS)} -b 4096 -e 16384 -f 4 -n 4 --batches 3 "
                      "--max-seconds 0.02 -G 8 -g 2", collectives["commands"])
        self.assertNotIn(("gather", 4096), [(row["operation"], row["bytes"]) for row in collectives["rows"]])
        self.assertEqual(process["commands"], ["bench --benchmark_filter=comm/", "benchmarks/peer_torch.py"])
        self.assertEqual(process["rows"], [{"name": "comm/gather/4", "gantry_us": 2, "peer_us": 5, "ratio": 2.5}])
        code, output, again = self.record()
        self.assertEqual(code, 1)
        self.assertIn("expected a new file, but it exists", output)
        self.assertEqual(again, results)

    def run_alloc(self, more=()):
        """Runs the step alloc with programs that print figures; returns what it wrote."""
        self.program("gantry-replay", '#!/bin/sh\nwhile [ "$1" != --dump ]; do shift; done\nhead -c 64 /dev/zero > "$2"\n')
        self.program("alloc_peer_gantry", '#!/bin/sh\ncase "$*" in *replay*) ;; *) echo alloc/pair/512 20; echo alloc/live_set 80 ;; esac\n')
        code, output = self.run_steps(steps=("alloc",), more=more)
        self.assertEqual(code, 0, output)
        return self.rows("alloc")

    def test_the_allocator_is_measured_and_recorded(self):
        alloc = self.run_alloc()
        self.assertTrue(alloc["quick"])
        self.assertEqual([peers["gantry"] for peers in alloc["micro"]], [{"alloc/pair/512": 20, "alloc/live_set": 80}])
        code, output, results = self.record()
        self.assertEqual((code, results), (1, []))
        self.assertIn("expected rows of gantry and of a peer, but got none", output)

        ours = {"gantry": {"alloc/pair/512": 20, "alloc/threads8/pair_4096": 8}, "gantry raw": {"alloc/pair/512": 43}, "gantry async": {}}
        rounds = [{**ours, "PyTorch": {"alloc/pair/512": ns}, "PyTorch expandable": {"alloc/pair/512": 700}, "cudaMallocAsync": {}}
                  for ns in (600, 400, 500)]
        complete = {"first_ns": 9, "warm_ns": 97.14, "peak_reserved": 400 << 20, "ooms": 0, "done": 5, "operations": 5}
        replay = [{"case": "rmm:1000,1", "limit_bytes": 1, "peak_live_bytes": 300 << 20, "peers": {
            "gantry": complete, "gantry async": complete, "PyTorch": {**complete, "ooms": 2}, "cudaMallocAsync": {**complete, "done": 2}}}]
        alloc = {"device": "GPU H1", "torch": "2.0", "quick": False, "micro": rounds, "replay": replay}
        (self.out / "alloc.json").write_text(json.dumps(alloc))
        code, output, results = self.record()
        self.assertEqual(code, 0, output)
        allocator, sequences = results
        self.assertEqual([result["name"][10:] for result in results], ["-1xh1-allocator.json", "-1xh1-sequences.json"])
        self.assertEqual((allocator["peer"], allocator["devices"]), ("PyTorch 2.0", 1))
        self.assertEqual(allocator["commands"], ["benchmarks/alloc_peers.py build --quick --work alloc --json alloc.json"])
        self.assertEqual(allocator["rows"], [{"name": "pair, 512 B", "gantry_ns": 20, "raw_pointers_ns": 43, "peers": {
            "PyTorch": {"ns": 500, "ratio": 25}, "PyTorch expandable": {"ns": 700, "ratio": 35}}, "rounds": [20, 25, 30]}])
        self.assertEqual(sequences["rows"], [{"sequence": "rmm:1000,1", "peak_live": "300 MiB", "limit_factor": 1.05, "results": {
            "gantry": {"outcome": "complete", "ns": 97.1, "waste_percent": 25}, "PyTorch": {"outcome": "out of memory"},
            "cudaMallocAsync": {"outcome": "too slow", "done_percent": 40}}}])

    def test_quick_sequences_are_not_recorded(self):
        alloc = self.run_alloc()
        complete = {"first_ns": 9, "warm_ns": 9, "peak_reserved": 8, "ooms": 0, "done": 5, "operations": 5}
        alloc["device"] = "GPU H1"
        alloc["replay"] = [{"case": "a", "limit_bytes": 1, "peak_live_bytes": 4, "peers": {"gantry": complete, "RMM pool": complete}}]
        for peers in alloc["micro"]:
            peers["RMM pool"] = {"alloc/pair/512": 40}
        (self.out / "alloc.json").write_text(json.dumps(alloc))
        code, output, results = self.record()
        self.assertEqual((code, [result["kind"] for result in results]), (0, ["allocator"]), output)

    def test_a_run_without_a_peer_or_without_gpus_is_not_recorded(self):
        self.run_steps(steps=("any",))
        code, output, results = self.record()
        self.assertEqual((code, results), (1, []))
        self.assertIn("expected rows of gantry and of a peer, but got none", output)
        report = self.rows("any")
        (self.out / "nccl.json").write_text(json.dumps({**report, "device": "Simulated GPU", "rows": [
            {**row, "variant": "default"} for row in report["rows"]]}))
        code, output, results = self.record()
        self.assertEqual((code, results), (1, []))
        self.assertIn("expected figures of GPUs, but got those of 'Simulated GPU'", output)


class PartsTest(unittest.TestCase):
    def test_halves_cover_the_part_once(self):
        part = {"operation": ["a", "b", "c"], "bytes": [1, 4], "mode": ["eager"]}
        seen, left = [], [part]
        while left:
            smaller = supervised_run.halves(left[-1])
            last = left.pop()
            left += smaller
            if not smaller:
                seen.append(tuple(values[0] for values in last.values()))
        self.assertEqual(sorted(seen), [(o, b, "eager") for o in "abc" for b in (1, 4)])

    def test_causes_name_signals_however_they_come(self):
        self.assertEqual(supervised_run.cause_of(-11, "x"), "crashed with SIGSEGV")
        self.assertEqual(supervised_run.cause_of(128 + 6, ""), "crashed with SIGABRT")
        self.assertEqual(supervised_run.cause_of(2, "no device"), "failed with exit code 2: no device")

    def test_sizes_are_those_of_gantry_bench(self):
        self.assertEqual(measure.sizes_between("4K", "100KiB"), [4096, 16384, 65536])
        self.assertEqual(measure.sizes_between("1M", "1M"), [1 << 20])
        self.assertEqual(measure.sizes_between("8", "40"), [8, 32])

    def test_a_row_without_any_time_is_a_table(self):
        report = {"library": "L", "rows": [], "failures": [{"operation": "gather", "variant": "auto", "bytes": 8, "mode": "eager",
                                                            "cause": "crashed"}]}
        table, = collectives_table.tables_of([report], "p50_us", [])
        self.assertIn("| 8 B | eager | failed |", list(table.lines()))


if __name__ == "__main__":
    unittest.main()
