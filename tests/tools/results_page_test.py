#!/usr/bin/env python3
"""docs/performance.md is what benchmarks/measure.py writes; results that cannot be reproduced are refused.

Usage: results_page_test.py BENCHMARKS_FOLDER
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCHMARKS = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BENCHMARKS))
import result_files  # noqa: E402
import results_page  # noqa: E402

RESULT = dict(schema="gantry-results-1", kind="collectives", date="2026-01-02", commit=None, machine="2 × GPU", devices=2, peer="NCCL",
              how="graphs", commands=["GANTRY_COLL_TABLE=t.json mpirun -n 2 gantry-bench -o all_reduce"],
              rows=[dict(operation="all_reduce", dtype="f32", redop="sum", bytes=4096, memory="any", gantry_us=2.0, peer_us=4.0, ratio=2.0)])


class ResultsPageTest(unittest.TestCase):
    def read(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            for i, result in enumerate(results):
                (pathlib.Path(folder) / f"{i}.json").write_text(json.dumps(result), encoding="utf-8")
            return result_files.read_results(pathlib.Path(folder))

    def test_the_page_is_current(self):
        done = subprocess.run([sys.executable, "-B", BENCHMARKS / "measure.py", "page", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_another_page_is_refused(self):
        page = results_page.PAGE
        with tempfile.TemporaryDirectory() as folder:
            results_page.PAGE = pathlib.Path(folder) / "performance.md"
            try:
                self.assertEqual(results_page.main([]), 0)
                self.assertEqual(results_page.main(["--check"]), 0)
                results_page.PAGE.write_text(results_page.PAGE.read_text(encoding="utf-8") + "faster\n", encoding="utf-8")
                self.assertEqual(results_page.main(["--check"]), 1)
            finally:
                results_page.PAGE = page

    def test_a_program_outside_of_the_project_is_refused(self):
        for command in ("mpirun -n 2 my_copies", "./a.out", "python3 try.py"):
            with self.assertRaisesRegex(ValueError, "expected a program of the project"):
                self.read({**RESULT, "commands": [command]})
        self.assertEqual(len(self.read({**RESULT, "commands": ["benchmarks/peer_torch.py > torch.json", "bench"]})), 1)

    def test_incomplete_results_are_refused(self):
        for key in ("date", "machine", "commands", "rows"):
            with self.assertRaisesRegex(ValueError, f"{key} are missing"):
                self.read({name: value for name, value in RESULT.items() if name != key})
        with self.assertRaisesRegex(ValueError, "expected rows and commands, but got none"):
            self.read({**RESULT, "commands": []})

    def test_twins_have_a_section_once_they_ran_on_a_gpu(self):
        rows = [{"name": "mlp_restart 160 16 4", "gantry_s": 0.5, "peer_s": 0.75, "ratio": 1.5, "gantry_loss": 0.1, "peer_loss": 0.1}]
        twins = {**RESULT, "kind": "twins", "peer": "libtorch 2.11", "machine": "1 × GPU", "devices": 1, "rows": rows,
                 "commands": ["benchmarks/twins/run_twins.py build/cuda"]}
        self.assertEqual(results_page.twins_parts(self.read({**twins, "devices": 0})), [])
        heading, text, table = results_page.twins_parts(self.read(twins))
        self.assertEqual(heading, "## Programs beside libtorch")
        self.assertIn("1 × GPU", text)
        self.assertIn("| `mlp_restart 160 16 4` | 0.5 | 0.75 | 1.50 |", table)

    def test_the_newest_run_counts(self):
        newer = {**RESULT, "date": "2026-02-01", "rows": [{**RESULT["rows"][0], "gantry_us": 1.0, "ratio": 4.0}]}
        lines = list(results_page.collectives_table(self.read(newer, RESULT)))
        self.assertIn("| all_reduce, 4 KiB | 1 | 4.00 |", lines)

    def test_ranks_of_one_process_are_not_in_the_table(self):
        row = {**RESULT["rows"][0], "operation": "broadcast", "bytes": 16 << 20, "memory": "one process", "gantry_us": 2.0, "ratio": 1.5}
        results = self.read({**RESULT, "rows": [RESULT["rows"][0], row]})
        self.assertNotIn("| broadcast, 16 MiB | 2 | 1.50 |", list(results_page.collectives_table(results)))

    def test_ratios_are_those_of_the_times(self):
        for result, row in results_page.rows_of(result_files.read_results(), "collectives"):
            self.assertAlmostEqual(row["ratio"], row["peer_us"] / row["gantry_us"], delta=0.01 * row["ratio"] + 0.01, msg=result["name"])


if __name__ == "__main__":
    unittest.main()
