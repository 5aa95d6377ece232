"""scripts/demo with stand-ins for the package manager, CMake and nvidia-smi: what it builds, and how much it says.

    demo_test.py <source folder> <build folder>
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MOST_LINES = 40
FAKE_CMAKE = """#!/bin/sh
echo "$@" >> "$CALLS"
for i in $(seq 300); do echo "[$i/300] Building"; done
if [ "$1" = --build ]; then
  test -z "$BUILD_FAILS" || { echo "the last words of the compiler"; exit 1; }
  mkdir -p build/demo/bin
  ln -sf "$REAL_BUILD/bin/digits" "$REAL_BUILD/bin/glaunch" build/demo/bin
  sed 's/gantry_WITH_CUDA ON/gantry_WITH_CUDA OFF/' "$REAL_BUILD/gantryConfig.cmake" > build/demo/gantryConfig.cmake
fi
"""
FAKE_SETUP = "#!/bin/sh\nfor i in $(seq 235); do echo \"Setting up package $i\"; done\n"


class DemoTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path in ["scripts/demo", "scripts/jobs", "scripts/has_gpu", "examples/digits/three_ways"]:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / path, self.root / path)
        self.write_program("scripts/setup", FAKE_SETUP)
        self.write_program("tools/cmake", FAKE_CMAKE)

    def write_program(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")
        (self.root / path).chmod(0o755)

    def run_demo(self, **changes):
        environment = {**os.environ, "PATH": f"{self.root / 'tools'}:{os.environ['PATH']}", "CALLS": str(self.root / "calls"),
                       "REAL_BUILD": str(BUILD), **changes}
        environment.pop("GANTRY_SIM_DEVICES", None)
        result = subprocess.run([self.root / "scripts/demo"], env=environment, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr, (self.root / "calls").read_text(encoding="utf-8")

    def test_without_a_gpu(self):
        code, output, calls = self.run_demo(CUDA_VISIBLE_DEVICES="")
        self.assertEqual(code, 0, output)
        self.assertLessEqual(len(output.splitlines()), MOST_LINES, output)
        self.assertIn("--preset demo -DGANTRY_CUDA=OFF", calls)
        first, last, following = output.splitlines()[0], *output.splitlines()[-2:]
        self.assertIn("builds the simulated platform only", first)
        self.assertRegex(output, r"expect about \d+ min with \d+ compiler\(s\) at once and \d+ MB in build/demo")
        self.assertIn("training on 4 simulated devices, since no GPU is visible", output)
        self.assertIn("all ways end with the same bits", output)
        self.assertRegex(last, r"^took \d+ min \d+ s; build/demo holds [\d.]+[KMG]B$")
        self.assertRegex(following, "^next: ")
        for path in re.findall(r"\b(?:docs|scripts|examples)/\S*\w", following):
            self.assertTrue((SOURCE / path).is_file(), following)
        log = (self.root / "build/demo/demo.log").read_text(encoding="utf-8")
        self.assertIn("Setting up package 235", log)
        self.assertIn("[300/300] Building", log)

    def test_with_a_gpu(self):
        self.write_program("tools/nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-0)'\n")
        code, output, calls = self.run_demo(CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(code, 0, output)
        self.assertIn("--preset demo -DGANTRY_CUDA=AUTO", calls)
        self.assertIn("for the GPUs of this machine", output.splitlines()[0])
        self.assertIn("since this build has no CUDA", output)

    def test_a_build_that_fails(self):
        code, output, _ = self.run_demo(CUDA_VISIBLE_DEVICES="", BUILD_FAILS="1")
        self.assertEqual(code, 1, output)
        self.assertLessEqual(len(output.splitlines()), MOST_LINES, output)
        self.assertIn("build failed; the end of build/demo/demo.log:", output)
        self.assertIn("the last words of the compiler", output)


if __name__ == "__main__":
    SOURCE, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
