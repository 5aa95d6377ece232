"""Runs measuring programs so that one row that fails never loses the others."""
import itertools
import json
import os
import selectors
import signal
import subprocess
import time

SCHEMA = "gantry-collectives-1"
KILL_SECONDS = 15  # from SIGTERM, which mpirun passes on to its ranks, to SIGKILL


class Outcome:
    """How a command ended: an exit code, or a cause if it gave none."""

    def __init__(self, code, cause, tail):
        self.code = code
        self.cause = cause  # None, or "crashed with SIGSEGV", "printed nothing for 120 s", …
        self.tail = tail  # the last line of its output


def stop(process):
    for number, seconds in ((signal.SIGTERM, KILL_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=seconds)
            break
        except subprocess.TimeoutExpired:
            pass


def cause_of(code, tail):
    """Why a program gave no results. Launchers give the number of the signal on top of 128."""
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        try:
            return f"crashed with {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"failed with exit code {code}" + (f": {tail}" if tail else "")


def run(command, log, silence, environment, stdout=None):
    """Runs `command`; its output goes to `log`, but standard output to `stdout` if that is given.

    A command that writes nothing for `silence` seconds is stopped. Where standard output goes to a file, its growth counts, too.
    """
    process = subprocess.Popen(list(map(str, command)), stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment, start_new_session=True)
    selector = selectors.DefaultSelector()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
    tail, heard, size, silent = b"", time.monotonic(), 0, False
    while selector.get_map():
        events = selector.select(timeout=min(1.0, silence / 4))
        for key, _ in events:
            data = key.fileobj.read()
            if not data:
                selector.unregister(key.fileobj)
                continue
            log.write(data.decode(errors="replace"))
            log.flush()
            tail = (tail + data)[-4096:]
            heard = time.monotonic()
        if stdout is not None and os.fstat(stdout.fileno()).st_size != size:
            size, heard = os.fstat(stdout.fileno()).st_size, time.monotonic()
        if process.poll() is not None and not events:
            break  # what it left behind may keep the pipes open
        if time.monotonic() - heard > silence:
            silent = True
            break
    if not silent:
        try:
            process.wait(timeout=silence)
        except subprocess.TimeoutExpired:
            silent = True
    if silent or selector.get_map():
        stop(process)  # and what it left behind
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if silent:
        return Outcome(None, f"printed nothing for {silence:g} s", last)
    return Outcome(process.returncode, None, last)


def read_report(path):
    """The results in a file; None if it holds none."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and report.get("schema") == SCHEMA else None


class RowSearch:
    """Measures with a program; where a run fails, halves of its work are run, down to single rows.

    A part of the work is a dict: a list of values for every dimension (operation, bytes, variant, mode). `run_part(part, path)` measures it and
    writes a report to `path`; it returns an Outcome. A report is complete, however the program ended.
    """

    def __init__(self, run_part, folder, most_failures):
        self.run_part = run_part
        self.folder = folder
        self.most_failures = most_failures
        self.failed_runs = 0
        self.runs = 0
        self.report = None
        self.failures = []

    def measure(self, part):
        if self.failed_runs >= self.most_failures:
            self.give_up(part, f"not tried after {self.failed_runs} runs that failed")
            return
        self.runs += 1
        path = self.folder / f"part-{self.runs}.json"
        outcome = self.run_part(part, path)
        report = read_report(path)
        if report is not None:
            if self.report is None:
                self.report = report
            else:
                self.report["rows"] += report["rows"]
            return
        self.failed_runs += 1
        smaller = halves(part)
        for half in smaller:
            self.measure(half)
        if not smaller:
            self.give_up(part, outcome.cause or cause_of(outcome.code, outcome.tail))

    def give_up(self, part, cause):
        for values in itertools.product(*part.values()):
            self.failures.append(dict(zip(part, values), cause=cause))

    def result(self):
        """The joined report, with `failures`; None if nothing was measured."""
        if self.report is None:
            return None
        curves = {}
        for row in self.report["rows"]:
            curves.setdefault((row["operation"], row["variant"]), len(curves))
        self.report["rows"].sort(key=lambda row: (curves[row["operation"], row["variant"]], row["bytes"], row["mode"]))
        self.report["failures"] = self.failures
        return self.report


def halves(part):
    """Two smaller parts; none of a single row."""
    for dimension, values in part.items():
        if len(values) > 1:
            middle = len(values) // 2
            return [{**part, dimension: values[:middle]}, {**part, dimension: values[middle:]}]
    return []
