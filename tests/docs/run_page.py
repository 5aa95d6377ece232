"""Runs the blocks of one Markdown page as a reader would, in their order, in an empty folder.

The folder looks like a checkout that is built: build/<preset> is this build, and its programs are in PATH. A checkout with CMakeLists.txt
is `gantry`. Shell blocks are one terminal: a variable that a block exports is there in the next ones. C++ blocks run on four simulated
devices; a shell block has those that its page asks for.
An installation of a page shares its programs with the build, and goes when the page has passed.
Fails on a block that fails, and on one that is of no known language. How blocks are marked: blocks.py.
"""

import argparse
import filecmp
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from blocks import PageError, parse_page
from generated import write_project

BUILDS = ("auto", "sim", "cuda", "release", "asan", "tsan", "demo", "package")
MOST_LINES = 60  # of what a failed block printed
SOURCE_FOLDERS = ("benchmarks", "docs", "examples", "scripts", "tests")
BINARY_FOLDERS = ("bin", "lib", "lib64", "libexec")  # of a build; all but some MB of an installation comes from them
LEAST_SHARED_BYTES = 1 << 16


class BlockError(Exception):
    """A block that does not do what the page says."""


def matches_output(shown, printed):
    """Whether every line of `shown` is in `printed`, in that order; "…" stands for any text."""
    rows = iter(printed.splitlines())
    for line in shown.splitlines():
        if line.strip() in ("", "…"):
            continue
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.strip().split("…")))
        if not any(pattern.fullmatch(row.strip()) for row in rows):
            return False
    return True


def share_installed(home, build):
    """Makes each large file below `home` that a page copied from `build` a hard link to it, where both are on one file system."""
    built = {}
    for folder in BINARY_FOLDERS:
        for path in (build / folder).rglob("*"):
            if path.is_file() and not path.is_symlink():
                built.setdefault((path.name, path.stat().st_size), []).append(path)
    for copy in list(home.rglob("*")):
        if copy.is_symlink() or not copy.is_file() or copy.stat().st_size < LEAST_SHARED_BYTES:
            continue
        for path in built.get((copy.name, copy.stat().st_size), []):
            if not copy.samefile(path) and filecmp.cmp(path, copy, shallow=False):
                link = copy.with_name(copy.name + ".shared")
                try:
                    link.hardlink_to(path)
                except OSError:
                    return
                link.replace(copy)
                break


class PageRun:
    """The folder, the environment and the counts of one run."""

    def __init__(self, options, blocks):
        self.options = options
        self.blocks = blocks
        self.folder = options.work.resolve()
        self.output = ""
        self.counts = {}
        self.reasons = []
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "build").mkdir(parents=True)
        for preset in BUILDS:
            (self.folder / "build" / preset).symlink_to(options.build)
        for name in SOURCE_FOLDERS:
            (self.folder / name).symlink_to(options.source / name)
        (self.folder / "gantry").symlink_to(options.source)  # beside the project of a cmake block
        flags = f"-fsanitize={options.sanitize}" if options.sanitize else ""
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "GANTRY_SIM_DEVICES"}, "HOME": str(self.folder / "home"), "PATH": f"{options.build / 'bin'}:{os.environ['PATH']}",
            "CXX": options.compiler, "CXXFLAGS": flags, "CMAKE_GENERATOR": options.generator,
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        (self.folder / "home").mkdir()
        # Two mpirun that begin and end at one time fail over the folder of their user in /tmp. A path in the page's folder is too long.
        self.sessions = tempfile.TemporaryDirectory(prefix="page-")
        self.environment["OMPI_MCA_orte_tmpdir_base"] = self.sessions.name

    def count(self, kind, reason=None):
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if reason:
            self.reasons.append(reason)

    def start(self, command, place, **variables):
        """Runs a command to its end and keeps its output; throws BlockError if it fails."""
        environment = {**self.environment, **variables}
        process = subprocess.Popen(command, cwd=self.folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self.output, _ = process.communicate(timeout=self.options.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.output, _ = process.communicate()
            raise BlockError(f"{place}: still runs after {self.options.timeout} s\n{self.output}") from None
        if process.returncode != 0:
            end = "\n".join(self.output.splitlines()[-MOST_LINES:])
            raise BlockError(f"{place}: exit code {process.returncode}\n{end}")

    def is_compiled(self, block):
        return block.language == "cpp" and not block.is_left_out and "file" not in block.markers and not self.missing(block)

    def missing(self, block):
        """Why this build or this machine cannot run the block, or None."""
        for need in filter(None, (need.strip() for need in block.markers.get("needs", "").split(","))):
            is_file = "/" in need
            if not (self.folder / need).exists() if is_file else shutil.which(need, path=self.environment["PATH"]) is None:
                return f"{need} is not {'there' if is_file else 'installed'}"
        builds = [build.strip() for build in block.markers.get("build", "").split(",")]
        if builds != [""] and not set(builds) & set((self.options.sanitize or "none").split(",")):
            return f"needs a build with the sanitizer {' or '.join(builds)}"
        return None

    def compile_all(self):
        """Builds every C++ block of the page at once."""
        compiled = [block for block in self.blocks if self.is_compiled(block)]
        if not compiled:
            return
        project = self.folder / "page"
        write_project(project, compiled)
        self.configure_and_build(project, compiled[0].page)

    def configure_and_build(self, project, place, build=True):
        self.start(["cmake", "-S", project, "-B", project / "out", f"-Dgantry_DIR={self.options.build}",
                    f"-DCMAKE_BUILD_TYPE={'RelWithDebInfo' if self.options.sanitize else ''}"], place)
        if build:
            self.start(["cmake", "--build", project / "out"], place)

    def run_block(self, block):
        missing = self.missing(block)
        if block.language == "text" and not missing:
            if "before" in block.markers:
                self.start(["bash", "-c", f"set -euo pipefail\n{block.markers['before']}"], block.place)
                self.has_output = True
            if "output" in block.markers and self.has_output and not matches_output(block.code, self.output):
                raise BlockError(f"{block.place}: expected the output that the page shows, but got\n{self.output}")
            self.count("output" if "output" in block.markers else "text")
        elif block.is_left_out or missing:
            self.count("not run", missing or block.markers["not run"])
            self.has_output = False
        elif "file" in block.markers:
            path = self.folder / block.markers["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
            self.count("saved")
        else:
            getattr(self, f"run_{block.language}")(block)
            self.has_output = True

    def run_cpp(self, block):
        if "only compiled" in block.markers:
            self.count("compiled", block.markers["only compiled"])
            return
        programs = self.folder / "page" / "out"
        command = [programs / block.name] if block.is_program else [programs / "fragments", block.name]
        self.start(command, block.place, GANTRY_SIM_DEVICES="4")
        self.count("run")

    def run_cmake(self, block):
        project = self.folder / block.name
        project.mkdir()
        (project / "main.cpp").write_text("#include <gantry/gantry.hpp>\nint main() {}\n", encoding="utf-8")
        (project / "CMakeLists.txt").write_text(block.code, encoding="utf-8")
        self.configure_and_build(project, block.place, build=False)
        self.count("run")

    def run_sh(self, block):
        exported = self.folder / "build" / "exported"
        script = "set -euo pipefail\n" + block.markers.get("before", "") + "\n" + "\n".join(block.runnable_lines())
        self.start(["bash", "-c", f"{script}\nenv -0 > {shlex.quote(str(exported))}"], block.place)
        self.environment = dict(entry.split("=", 1) for entry in exported.read_text(encoding="utf-8").split("\0") if entry)
        share_installed(self.folder / "home", self.options.build)
        self.count("run")
        if block.left_out:
            self.count("run in part", block.markers["not run"])

    def run(self):
        """Runs everything; returns the complaints."""
        complaints = []
        self.has_output = False
        try:
            self.compile_all()
        except BlockError as error:
            return [str(error)]
        for block in self.blocks:
            try:
                self.run_block(block)
            except BlockError as error:
                complaints.append(str(error))
        self.sessions.cleanup()
        if not complaints:
            shutil.rmtree(self.folder / "home")
        return complaints


def summary(page, counts, reasons):
    """One line on a page, and one for each reason why something is not run."""
    parts = [f"{number} {kind}" for kind, number in sorted(counts.items())]
    lines = [f"{page}: {', '.join(parts) or 'no blocks'}"]
    lines += [f"  {reasons.count(reason)} × {reason}" for reason in sorted(set(reasons))]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", help="relative to the source folder")
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="made anew")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--generator", default="Ninja")
    parser.add_argument("--sanitize", default="")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one block")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.source = options.source.resolve()
    try:
        blocks = parse_page(options.page, (options.source / options.page).read_text(encoding="utf-8"))
    except PageError as error:
        sys.exit(str(error))
    run = PageRun(options, blocks)
    complaints = run.run()
    print(summary(options.page, run.counts, run.reasons))
    if complaints:
        sys.exit("\n".join(complaints))


if __name__ == "__main__":
    main()
