"""scripts/setup in a PATH of stand-ins, and the packages that cmake/requirements asks CMake for.

    setup_test.py <source folder>
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# The script itself calls these.
SYSTEM_PROGRAMS = ("bash", "cat", "chmod", "dirname", "env", "head", "mktemp", "rm", "sed", "sort")
PROGRAMS = ("c++", "ninja", "make", "pkg-config", "python3", "ccache", "ip")
FAKE_CMAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "cmake version ${CMAKE_RELEASE:-3.25.1}"; exit; fi
test ! -e "$ROOT/broken" || { echo "the compiler is not able to compile a simple test program"; exit 1; }
while read -r name; do echo "-- missing: $name"; done < "$ROOT/libraries"
"""
# Each file of the folder `stock` is a package: commands that install it.
FAKE_APT = """#!/bin/sh
echo "$@" >> "$ROOT/calls"
for package in "$@"; do test ! -e "$ROOT/stock/$package" || . "$ROOT/stock/$package"; done
"""


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("bin", "stock"):
            (self.root / name).mkdir()
        for name in SYSTEM_PROGRAMS:
            (self.root / "bin" / name).symlink_to(shutil.which(name))
        for name in PROGRAMS:
            self.write_program(name)
        self.write_program("cmake", FAKE_CMAKE)
        self.write_program("id", "#!/bin/sh\necho 1000\n")
        self.set_missing_libraries()

    def write_program(self, name, text="#!/bin/sh\n"):
        path = self.root / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def remove_programs(self, *names):
        for name in names:
            (self.root / "bin" / name).unlink()

    def set_missing_libraries(self, *names):
        (self.root / "libraries").write_text("".join(name + "\n" for name in names), encoding="utf-8")

    def be_root_with_apt(self):
        self.write_program("id", "#!/bin/sh\necho 0\n")
        self.write_program("apt-get", FAKE_APT)

    def calls(self):
        path = self.root / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def setup(self, **changes):
        environment = {"PATH": str(self.root / "bin"), "ROOT": str(self.root), **changes}
        result = subprocess.run([SOURCE / "scripts/setup"], env=environment, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def assert_fails(self, *lines, **changes):
        code, output = self.setup(**changes)
        self.assertEqual(code, 1, output)
        for line in lines:
            self.assertIn(line, output)

    def test_needs_no_package_manager_where_everything_is_there(self):
        self.assertEqual(self.setup(), (0, "setup: the build finds everything that it needs\n"))
        self.be_root_with_apt()
        self.assertEqual(self.setup(), (0, "setup: the build finds everything that it needs\n"))
        self.assertEqual(self.calls(), [])

    def test_names_the_packages_of_a_library_where_it_may_not_install(self):
        self.set_missing_libraries("fmt", "GTest")
        rows = ["setup: the build needs these, which are missing:",
                "  fmt: Debian and Ubuntu libfmt-dev; Fedora fmt-devel; conda-forge fmt\n",
                "  GTest: Debian and Ubuntu libgtest-dev libgmock-dev; Fedora gtest-devel gmock-devel; conda-forge gtest\n"]
        self.assert_fails(*rows)
        self.write_program("apt-get", FAKE_APT)  # without root and without sudo
        self.assert_fails(*rows)
        self.assertEqual(self.calls(), [])

    def test_names_programs_that_are_missing_or_too_old(self):
        self.assert_fails("  cmake (3.25 or newer): Debian and Ubuntu cmake; Fedora cmake; conda-forge cmake\n",
                          "libraries are looked for when cmake, ninja and a compiler are there", CMAKE_RELEASE="3.22.1")
        self.remove_programs("c++", "ninja", "cmake")
        self.assert_fails("  c++ (C++20; g++ 12 or newer): Debian and Ubuntu g++; Fedora gcc-c++; conda-forge gxx\n", "  cmake (", "  ninja: ")

    def test_takes_newer_programs_and_other_names(self):
        self.remove_programs("c++", "ninja")
        self.write_program("ninja-build")
        self.write_program("clang++")
        self.assertEqual(self.setup(CMAKE_RELEASE="4.0.2")[0], 0)
        self.assert_fails("  c++ (", CXX="other-c++")
        self.assertEqual(self.setup(CXX="ninja-build -m64")[0], 0)

    def test_shows_why_the_compiler_does_not_work(self):
        (self.root / "broken").touch()
        self.assert_fails("not able to compile a simple test program", "  c++ (")

    def test_continues_without_parts_that_may_be_left_out(self):
        self.remove_programs("ip", "ccache")
        self.set_missing_libraries("hwloc", "ZLIB")
        code, output = self.setup()
        self.assertEqual(code, 0, output)
        self.assertIn("  ZLIB (without it: no examples): Debian and Ubuntu zlib1g-dev; Fedora zlib-devel; conda-forge zlib\n", output)
        self.assertIn("  ip (without it: no tests of several hosts): Debian and Ubuntu iproute2; Fedora iproute; conda-forge has none\n", output)
        self.assertEqual(output.count("setup: left out"), 1)

    def test_names_a_broken_ccache(self):
        self.write_program("ccache", "#!/bin/sh\nexit 127\n")
        code, output = self.setup()
        self.assertEqual(code, 0, output)
        self.assertIn("setup: ccache does not run, so the build does without it\n", output)

    def test_installs_only_what_is_missing(self):
        self.be_root_with_apt()
        self.set_missing_libraries("pugixml", "MPI")
        for package, library in (("libpugixml-dev", "pugixml"), ("libopenmpi-dev", "MPI")):
            (self.root / "stock" / package).write_text(f'sed -i /{library}/d "$ROOT/libraries"\n', encoding="utf-8")
        code, output = self.setup()
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls(), ["update", "install --yes --no-install-recommends libpugixml-dev libopenmpi-dev openmpi-bin"])

    def test_looks_for_libraries_once_the_programs_are_installed(self):
        self.be_root_with_apt()
        self.remove_programs("ninja")
        self.set_missing_libraries("fmt")
        (self.root / "stock/ninja-build").write_text('echo "#!/bin/sh" > "$ROOT/bin/ninja"; chmod +x "$ROOT/bin/ninja"\n', encoding="utf-8")
        (self.root / "stock/libfmt-dev").write_text(': > "$ROOT/libraries"\n', encoding="utf-8")
        code, output = self.setup()
        self.assertEqual(code, 0, output)
        self.assertEqual([line.split()[-1] for line in self.calls()], ["update", "ninja-build", "update", "libfmt-dev"])

    def test_asks_sudo_where_it_is_no_root(self):
        self.be_root_with_apt()
        self.write_program("id", "#!/bin/sh\necho 1000\n")
        self.write_program("sudo", '#!/bin/sh\necho sudo >> "$ROOT/calls"\nexec "$@"\n')
        self.set_missing_libraries("fmt")
        (self.root / "stock/libfmt-dev").write_text(': > "$ROOT/libraries"\n', encoding="utf-8")
        self.assertEqual(self.setup()[0], 0)
        self.assertEqual(self.calls().count("sudo"), 2)

    def test_continues_where_the_package_manager_fails_and_nothing_is_needed(self):
        self.be_root_with_apt()
        self.write_program("apt-get", "#!/bin/sh\nexit 100\n")
        self.set_missing_libraries("hwloc")
        code, output = self.setup()
        self.assertEqual(code, 0, output)
        self.assertIn("setup: apt-get failed\n", output)
        self.assertIn("  hwloc (without it: no topology by hwloc)", output)
        self.set_missing_libraries("fmt")
        self.assert_fails("setup: apt-get failed", "  fmt: Debian and Ubuntu libfmt-dev")

    def test_fails_where_the_package_manager_brings_nothing_new(self):
        self.be_root_with_apt()
        self.assert_fails("  cmake (3.25 or newer)", CMAKE_RELEASE="3.22.1")
        self.assertEqual(len(self.calls()), 2)


class RequirementsTest(unittest.TestCase):
    def missing(self, *arguments, **changes):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(["cmake", "-S", SOURCE / "cmake/requirements", "-B", folder, *arguments], env={**os.environ, **changes},
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            return set(re.findall("^-- missing: (.*)$", result.stdout, re.MULTILINE))

    def test_finds_each_library_by_the_name_of_the_table(self):
        libraries = ["CLI11", "Eigen3", "GTest", "MPI", "OpenSSL", "ZLIB", "benchmark", "fmt", "nlohmann_json", "pugixml", "spdlog"]
        without = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{library}=ON" for library in libraries]
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(self.missing(*without, PKG_CONFIG_LIBDIR=empty, PKG_CONFIG_PATH=""), {*libraries, "hwloc"})
        table = (SOURCE / "scripts/setup").read_text(encoding="utf-8")
        for library in [*libraries, "hwloc"]:
            self.assertIn(f'\n  "{library}|', table)

    def test_finds_what_this_build_has_found(self):
        self.assertFalse(self.missing() & {"c++", "fmt", "spdlog", "nlohmann_json", "CLI11", "pugixml", "Eigen3", "OpenSSL", "GTest"})


if __name__ == "__main__":
    SOURCE = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1])
