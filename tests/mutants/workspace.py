"""A source tree and a build tree of the runner's own, in which mutants are built and tested."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import uuid

# A mutant may leave a variable unused.
OPTIONS = ["-DGANTRY_WERROR=OFF"]
# Of the commit that names changes.
IDENTITY = ["-c", "user.name=scripts/mutants", "-c", "user.email=mutants@localhost"]
# Of every process that a test starts: what a killed test leaves behind is found by it.
TAG = "GANTRY_MUTANT_RUN"


class BuildError(Exception):
    """What the compiler or the linker said."""


class Workspace:
    """A git worktree of root's commit with its uncommitted changes. Its build lies where those of root lie in root.

    So ccache finds what a build of root with the same preset has compiled.
    """

    def __init__(self, root, folder, preset, jobs):
        self.root = root
        self.source = folder
        self.preset = preset
        self.build = folder / "build" / preset
        self.jobs = jobs
        self.tag = uuid.uuid4().hex

    def prepare(self):
        """Brings the worktree to root's state, whatever an earlier run left in it, and configures the build."""
        # Names the changed tree without a trace in root, and prints nothing where nothing has changed.
        commit = self._git(self.root, "stash", "create") or self._git(self.root, "rev-parse", "HEAD")
        if (self.source / ".git").exists():
            self._git(self.source, "checkout", "--quiet", "--detach", "--force", commit)
        else:
            self.source.parent.mkdir(parents=True, exist_ok=True)
            self._git(self.root, "worktree", "add", "--quiet", "--detach", "--force", str(self.source), commit)
        _output_of(["cmake", "--preset", self.preset, *OPTIONS], cwd=self.source)

    def compile(self, tests):
        """Builds the programs of the tests: <noun>.sim and <noun>.race are <noun>_test."""
        targets = sorted({f"{test.split('.')[0]}_test" for test in tests})
        _output_of(["ninja", "-C", str(self.build), f"-j{self.jobs}", *targets])

    @contextlib.contextmanager
    def mutated(self, mutant):
        """The source tree has the mutant's fault within this context."""
        path = self.source / mutant.file
        text = path.read_text(encoding="utf-8")
        try:
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def run_test(self, test, limit):
        """Runs a test. Result: 'passed', 'failed', 'skipped' or 'hang', the seconds that it took, and its output."""
        command = ["ctest", "--test-dir", str(self.build), "--output-on-failure", "-R", f"^{re.escape(test)}$"]
        start = time.monotonic()
        process = None
        try:
            # A signal may end the runner before Popen returns: the test runs by then.
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                start_new_session=True, env={**os.environ, TAG: self.tag}, preexec_fn=_die_first)
            output, _ = process.communicate(timeout=limit)
            result = "failed" if process.returncode != 0 else "skipped" if "Skipped" in output else "passed"
        except subprocess.TimeoutExpired:
            output, result = f"no end within {limit:.0f} s", "hang"
        finally:
            seconds = time.monotonic() - start
            self._kill_processes()
            if process:
                process.wait()
                process.stdout.close()
        return result, seconds, output

    def _kill_processes(self):
        """Kills what the last test left behind. Processes that fork meanwhile leave more, hence the repetition."""
        for _ in range(100):
            processes = list(_processes_with(f"{TAG}={self.tag}"))
            if not processes:
                return
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    def _git(self, tree, *arguments):
        return _output_of(["git", *IDENTITY, "-C", str(tree), *arguments]).strip()


def names_in(build):
    """Names of all tests of a build tree."""
    output = _output_of(["ctest", "--test-dir", str(build), "-N"])
    return re.findall(r"^ *Test +#\d+: (\S+)$", output, re.MULTILINE)


def _output_of(command, cwd=None):
    """What a command prints. Raises BuildError if it fails."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def _die_first():
    """In a new process: a mutant that takes all memory ends before its neighbours do."""
    pathlib.Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


def _processes_with(assignment):
    """Ids of the living processes whose environment has the assignment."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if assignment.encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
