"""Tests of the lists' checks, and of the runner on a project of two functions."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import lists
import runner
import workspace

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "mutants"
ENTRY = """
[[mutant]]
name = "{name}"
breaks = "the sum"
file = "streams/sum.cpp"
old = '''{old}'''
new = '''{new}'''
tests = ["{tests}"]
"""
TOY = {
    "CMakePresets.json": '{"version": 6, "configurePresets": [{"name": "sim", "generator": "Ninja", '
                         '"binaryDir": "${sourceDir}/build/${presetName}"}]}',
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(toy CXX)\nenable_testing()\n"
                      "add_subdirectory(tests)\n",
    "tests/CMakeLists.txt": "foreach(noun sum difference)\n"
                            "  add_executable(${noun}_test ${noun}.cpp ../streams/sum.cpp)\n"
                            "  add_test(NAME ${noun}.sim COMMAND ${noun}_test)\nendforeach()\n",
    "tests/sum.cpp": "int sum(int, int);\nint main() { return sum(1, 2) == 3 ? 0 : 1; }\n",
    "tests/difference.cpp": "int difference(int, int);\nint main() { return difference(3, 2) == 1 ? 0 : 1; }\n",
    "streams/sum.cpp": "#include <unistd.h>\n#include <cstdio>\nint sum(int a, int b) { return a + b; }\n"
                       "int difference(int a, int b) { return a - b; }\n",
}
WRONG = ENTRY.format(name="Wrong sum", old="a + b", new="a * b", tests="sum.sim")
UNSEEN = ENTRY.format(name="Wrong difference", old="a - b", new="b - a", tests="sum.sim")
HANG = ENTRY.format(name="No end", old="{ return a + b; }", tests="sum.sim",
                    new='{ dprintf(1, "at %d\\n", getpid()); pause(); return a + b; }')
MALFORMED = ENTRY.format(name="No code", old="a + b", new="a +", tests="sum.sim")


def write_tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def is_running(pid):
    """False of a process that has ended, also of one that nobody has waited for."""
    try:
        return (pathlib.Path("/proc") / pid / "cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "toy"
        write_tree(self.root, TOY)

    def set_list(self, *entries):
        write_tree(self.root, {"tests/mutants/streams.toml": "".join(entries)})


class ListsTest(TreeTest):
    def assert_problem(self, text, *entries):
        self.set_list(*entries)
        problems = lists.violations(self.root)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(text, problems[0])

    def test_a_good_list_has_no_problems(self):
        self.set_list(WRONG, UNSEEN)
        self.assertEqual(lists.violations(self.root), [])

    def test_loops_over_literal_items_are_written_out(self):
        self.assertEqual(lists.registered_tests(self.root), {"sum.sim", "difference.sim"})
        write_tree(self.root, {"tests/CMakeLists.txt": "gantry_add_test(heap/pool INTERNAL)\nforeach(noun a\n    b)\n"
                                                       "  gantry_add_test(sim/${noun} SIM_ONLY)\nendforeach()\n"})
        self.assertEqual(lists.registered_tests(self.root), {"pool.sim", "a.sim", "b.sim"})

    def test_each_problem_is_named(self):
        self.assert_problem("streams/sum.cpp has its old text 0 times", WRONG.replace("a + b", "a / b"))
        self.assert_problem("streams/sum.cpp has its old text 2 times", WRONG.replace("a + b", "int a"))
        self.assert_problem("the edit changes nothing", WRONG.replace("a * b", "a + b"))
        self.assert_problem("no test is called product.sim", WRONG.replace("sum.sim", "product.sim"))
        self.assert_problem("no test is called um.sim", WRONG.replace("sum.sim", "um.sim"))
        self.assert_problem("streams/s.cpp: no such file", WRONG.replace("sum.cpp", "s.cpp"))
        self.assert_problem("another mutant has this name", WRONG, UNSEEN.replace("Wrong difference", "Wrong sum"))
        self.assert_problem("streams.toml: 'Wrong sum': no breaks", WRONG.replace("breaks", "survives"))
        self.assert_problem("streams.toml: 'Wrong sum': unknown victim", WRONG + "victim = 1\n")
        self.assert_problem("streams.toml: 'Wrong sum': no tests", WRONG.replace('["sum.sim"]', "[]"))
        self.assert_problem("streams.toml: ", "[[mutant]\n")

    def test_a_list_has_the_name_of_a_layer(self):
        write_tree(self.root, {"tests/mutants/sums.toml": WRONG})
        self.assertIn("no layer is called sums", lists.violations(self.root)[0])


class SampleTest(unittest.TestCase):
    LAYERS = {"core": 9, "memory": 2, "ipc": 5}
    MUTANTS = [lists.Mutant(layer, f"Fault {number}", "", "", "", "", ())
               for layer, count in LAYERS.items() for number in range(count)]

    def sample(self, count, seed="1"):
        return runner.sample(self.MUTANTS, count, seed)

    def test_each_layer_has_the_number_or_all_it_has(self):
        for count in range(1, 11):
            drawn = self.sample(count)
            self.assertEqual(len(set(drawn)), len(drawn))
            self.assertLessEqual(set(drawn), set(self.MUTANTS))
            for layer, total in self.LAYERS.items():
                self.assertEqual([mutant.layer for mutant in drawn].count(layer), min(count, total))

    def test_the_layers_take_turns(self):
        self.assertEqual([mutant.layer for mutant in self.sample(4)],
                         ["core", "memory", "ipc", "core", "memory", "ipc", "core", "ipc", "core", "ipc"])

    def test_the_seed_alone_decides(self):
        self.assertEqual(self.sample(3), self.sample(3))
        self.assertGreater(len({tuple(self.sample(3, str(seed))) for seed in range(20)}), 15)
        orders = {tuple(mutant.name for mutant in self.sample(2, str(seed)) if mutant.layer == "memory") for seed in range(20)}
        self.assertEqual(len(orders), 2)

    def test_a_larger_sample_has_the_smaller_one(self):
        for count in range(1, 9):
            self.assertLess(set(self.sample(count)), set(self.sample(count + 1)))

    def test_a_new_entry_displaces_at_most_one(self):
        entry = lists.Mutant("core", "Fault of today", "", "", "", "", ())
        for seed in range(20):
            with_entry = runner.sample([entry, *self.MUTANTS], 4, seed)
            self.assertIn(len(set(self.sample(4, seed)) - set(with_entry)), (0, 1))


class WorkspaceTest(unittest.TestCase):
    def test_a_signal_while_a_test_is_started_leaves_no_process(self):
        started = []
        start = subprocess.Popen

        def start_and_end(_, **options):
            started.append(start(["sleep", "1000"], **options))
            raise SystemExit(143)
        folder = pathlib.Path(tempfile.gettempdir())
        with mock.patch("subprocess.Popen", start_and_end), self.assertRaises(SystemExit):
            workspace.Workspace(folder, folder, "sim", 1).run_test("sum.sim", 200)
        with started[0] as process:
            running = is_running(str(process.pid))
            process.kill()
        self.assertFalse(running)


@unittest.skipUnless(all(map(shutil.which, ("git", "cmake", "ninja"))), "git, cmake and ninja are needed")
class RunnerTest(TreeTest):
    def setUp(self):
        super().setUp()
        self.work = self.root.parent / "work"
        self.set_list(WRONG)
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("-c", "user.name=toy", "-c", "user.email=toy@localhost", "commit", "--quiet", "--message", "toy")

    def git(self, *arguments):
        return subprocess.run(["git", "-C", self.root, *arguments], check=True, capture_output=True, text=True).stdout

    def command(self, *arguments):
        return [sys.executable, SCRIPT, "--root", self.root, "--build", self.work, "--jobs", "2", *arguments]

    def run_script(self, *arguments):
        result = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def mutated_source(self):
        return (self.work / "streams" / "sum.cpp").read_text(encoding="utf-8")

    def test_killed_mutants_and_survivors_are_told_apart(self):
        self.set_list(WRONG, UNSEEN)
        report = self.root.parent / "report.json"
        code, output = self.run_script("--json", report)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"streams +killed +\d+\.\d s  sum\.sim: Wrong sum\n")
        self.assertRegex(output, r"streams +survived +Wrong difference \(streams/sum\.cpp\)\n"
                                 r"  breaks: the sum\n  survives: unexplained\n")
        self.assertRegex(output, r"all +1 of +2 +50\.0%  too low")
        results = json.loads(report.read_text(encoding="utf-8"))
        self.assertEqual(results["layers"]["all"], {"killed": 1, "mutants": 2})
        self.assertEqual([row["result"] for row in results["mutants"]], ["killed", "survived"])
        # Without the survivor, and with the source of the second build restored.
        code, output = self.run_script("--name", "Wrong sum")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.mutated_source(), TOY["streams/sum.cpp"])

    def test_changes_that_are_not_committed_count(self):
        changed = TOY["streams/sum.cpp"].replace("a + b", "b + a")
        write_tree(self.root, {"streams/sum.cpp": changed})
        self.set_list(WRONG.replace("a + b", "b + a"))
        before = self.git("status", "--porcelain")
        code, output = self.run_script()
        self.assertEqual(code, 0, output)
        self.assertEqual(self.git("status", "--porcelain"), before)
        self.assertEqual(self.mutated_source(), changed)

    def test_a_hang_kills(self):
        self.set_list(HANG)
        code, output = self.run_script("--limit", "1")
        self.assertEqual(code, 0, output)
        self.assertIn("hang of sum.sim: No end", output)

    def test_a_mutant_that_does_not_compile_is_an_error(self):
        self.set_list(MALFORMED)
        code, output = self.run_script()
        self.assertEqual(code, 2, output)
        self.assertRegex(output, "streams +error +No code\n(.*\n)*.*error: ")

    def test_a_test_that_fails_without_a_fault_is_an_error(self):
        self.set_list(UNSEEN.replace("sum.sim", "difference.sim"))
        write_tree(self.root, {"tests/difference.cpp": "int main() { return 1; }\n"})
        code, output = self.run_script()
        self.assertEqual(code, 2, output)
        self.assertIn("difference.sim: failed without a fault", output)

    def test_an_interrupted_run_restores_the_source_and_leaves_no_process(self):
        log = self.root.parent / "pid"
        report = self.root.parent / "report.json"
        self.set_list(WRONG, HANG.replace('dprintf(1, "at %d\\n", getpid());',
                                          f'FILE* f = fopen("{log}", "w"); fprintf(f, "%d\\n", getpid()); fclose(f);'))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(self.command("--limit", "200", "--json", report), **quiet) as process:
            deadline = time.monotonic() + 120
            while not log.exists() or not log.read_text(encoding="ascii").endswith("\n"):
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            before = report.read_text(encoding="utf-8") if report.exists() else '{"mutants": []}'
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 143)
        self.assertEqual([row["name"] for row in json.loads(before)["mutants"]], ["Wrong sum"])
        self.assertEqual(self.mutated_source(), TOY["streams/sum.cpp"])
        self.assertFalse(is_running(log.read_text(encoding="ascii").strip()))

    def test_the_lists_are_printed_and_checked_without_a_run(self):
        self.assertEqual(self.run_script("--list"), (0, "streams      streams/sum.cpp: Wrong sum\n"))
        arguments = [sys.executable, SCRIPT, "--root", self.root]
        result = subprocess.run([*arguments, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, "1 mutants, 0 problem(s)\n"))
        self.set_list(WRONG.replace("a + b", "a / b"))
        result = subprocess.run([*arguments, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.set_list(WRONG, UNSEEN)
        sampled = [self.run_script("--list", "--sample", "1", "--seed", str(seed)) for seed in range(20)]
        self.assertEqual(set(sampled), {(0, f"streams      streams/sum.cpp: {name}\n")
                                        for name in ("Wrong sum", "Wrong difference")})
        code, output = self.run_script("--list", "--sample", "0")
        self.assertEqual(code, 2)
        self.assertIn("argument --sample: invalid positive value: '0'", output)
        code, output = self.run_script("--layer", "memory")
        self.assertEqual(code, 2)
        self.assertIn("no mutant is selected", output)


if __name__ == "__main__":
    unittest.main()
