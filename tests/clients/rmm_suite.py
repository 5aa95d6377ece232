"""RMM's own tests, with gantry's memory in the place of its base resource, beside cudaMallocAsync in that place."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
# A test's begin and end. A crash leaves a begin without an end.
BEGIN = re.compile(r"^\[ RUN      \] (\S+)", re.M)
END = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).* \(\d+ ms\)$", re.M)


def flags(source, wheels, side, per_thread):
    """Include folders and definitions. CCCL of RMM's wheel comes before the toolkit's, which is older."""
    folders = [source / "cpp", source / "cpp" / "include", wheels / "librmm" / "include" / "rapids", wheels / "librmm" / "include",
               wheels / "rapids_logger" / "include", HERE.parent.parent / "include"]
    defined = ["-DGANTRY_CLIENT_BESIDE"] * (side == "beside") + ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"] * per_thread
    return ["-std=c++20", "-O1", "-w", *[f"-I{folder}" for folder in folders], "-isystem", CUDA / "include", *defined]


def call(command):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return "" if done.returncode == 0 else f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}"


def build_librmm(source, wheels, out, pool):
    """librmm.so of the source, with the shared CUDA runtime: PyPI's has a static one, which simulated devices cannot serve."""
    objects = out / "librmm"
    objects.mkdir(parents=True, exist_ok=True)
    files = sorted((source / "cpp" / "src").rglob("*.cpp"))
    compiles = [["g++", *flags(source, wheels, "beside", False), "-fPIC", "-fvisibility=hidden", "-c", file, "-o", objects / f"{file.stem}.o"]
                for file in files]
    problems = [text for text in pool.map(call, compiles) if text]
    logger = shutil.copy2(wheels / "rapids_logger" / "lib64" / "librapids_logger.so", out)
    return problems or list(filter(None, [call(["g++", "-shared", "-s", *objects.glob("*.o"), "-o", out / "librmm.so", logger,
                                                f"-L{CUDA}/lib64", "-lcudart", "-Wl,-soname,librmm.so,-rpath,$ORIGIN"])]))


def build_suite(source, wheels, build, out, side, suite, per_thread):
    """A program of one test file; text if it does not compile or link."""
    program = out / folder_of(side, per_thread) / suite
    if program.exists():
        return ""
    program.parent.mkdir(parents=True, exist_ok=True)
    file = next(path for path in (source / "cpp" / "tests").rglob(f"{suite}_tests.c*"))
    compiler = ["g++"]
    if file.suffix == ".cu":
        compiler = [shutil.which("nvcc") or CUDA / "bin" / "nvcc", "-arch=sm_90", "-cudart", "shared", "--expt-extended-lambda"]
    problem = call([*compiler, *flags(source, wheels, side, per_thread), "-include", HERE / "rmm_resource.hpp", "-c", file, "-o", f"{program}.o"])
    problem = problem or call(["g++", "-s", f"{program}.o", out / "librmm.so", out / "librapids_logger.so", f"-L{build}/lib", "-lgantry", "-lgmock",
                               "-lgtest", "-lgtest_main", f"-L{CUDA}/lib64", "-lcudart", "-o", program,
                               f"-Wl,--disable-new-dtags,--as-needed,-rpath,$ORIGIN/..:{build}/lib:{CUDA}/lib64"])
    pathlib.Path(f"{program}.o").unlink(missing_ok=True)
    return problem


def folder_of(side, per_thread):
    return f"{side}-per-thread" if per_thread else side


def run_suite(program, environment, log, end):
    """{test: OK, FAILED, SKIPPED, crash or left}. Behind a crash, the program runs the tests that are left. Tests that fail run once more:
    some of RMM's fill their limit or not, as their threads happen to run."""
    results = run_tests(program, environment, log, end, {}, "")
    failed = [test for test, outcome in results.items() if outcome == "FAILED"]
    return results | run_tests(program, environment, log, end, {}, ":".join(failed)) if failed else results


def run_tests(program, environment, log, end, results, chosen):
    for _ in range(20):
        command = [program, f"--gtest_filter={chosen}-{':'.join(results)}"]
        try:
            done = subprocess.run(command, env=environment, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                  timeout=max(0.1, end - time.monotonic()), cwd=log.parent)
            code, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            code, text = None, (late.stdout or b"").decode(errors="replace")
        with open(log, "a", encoding="utf-8") as file:
            file.write(text)
        begun, ended = BEGIN.findall(text), {test: outcome for outcome, test in END.findall(text)}
        results.update({test: ended.get(test, "left" if code is None else "crash") for test in begun})
        if code in (None, 0) or all(test in ended for test in begun):
            break
    if code is None:
        results.setdefault("(the rest)", "left")
    elif code != 0 and "FAILED" not in results.values():
        results["(exit)"] = f"exit code {code}"
    return results


def run_side(args, client, out, side, per_thread, end):
    """{suite: {test: outcome}}: suites beside each other, but those that take all memory alone."""
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{args.build / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    if args.simulated:
        environment.update(LD_PRELOAD=str(args.build / "lib" / "libgantry_cudart.so"), GANTRY_SIM_DEVICES="1", GANTRY_SIM_MEMORY="16GiB")
    logs = args.work / "logs" / folder_of(side, per_thread)
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)

    def run(suite):
        return suite, run_suite(out / folder_of(side, per_thread) / suite, environment, logs / f"{suite}.txt", end)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = dict(pool.map(run, [suite for suite in client["suites"] if suite not in client["alone"]]))
    return results | dict(map(run, client["alone"]))


def compare(client, simulated, beside, gantry):
    """Prints a line for each suite. Returns how many tests pass beside only and are not known."""
    known = client["refusals"] + (client["need_gpu"] if simulated else [])
    bad = 0
    for suite, tests in gantry.items():
        passed = {test for test, outcome in tests.items() if outcome == "OK"}
        wanted = {test for test, outcome in beside.get(suite, tests).items() if outcome == "OK" or (simulated and outcome != "SKIPPED")}
        only = sorted(wanted - passed)
        wrong = [f"{test} {tests.get(test, 'left')}" for test in only if not any(re.fullmatch(name, test) for name in known)]
        bad += len(wrong) + (not wanted)
        shown = "–" if simulated else str(len(wanted))
        print(f"{suite:26} {shown:>6} {len(passed & wanted):6}  {', '.join(wrong)}{' (known: ' + ', '.join(set(only)) + ')' if only and not wrong else ''}")
    return bad


def run_rmm(client, args, source):
    out = args.work / "build"
    sides = ["gantry"] if args.simulated else ["beside", "gantry"]
    problems = []
    if source:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            problems = [] if (out / "librmm.so").exists() else build_librmm(source, args.wheels, out, pool)
            builds = [pool.submit(build_suite, source, args.wheels, args.build, out, side, suite, args.per_thread)
                      for side in sides for suite in client["suites"] + client["alone"]]
            problems += [build.result() for build in builds if build.result()]
        print("".join(problems), end="")
    end = time.monotonic() + args.seconds
    results = {side: run_side(args, client, out, side, args.per_thread, end) for side in sides}
    print(f"{'stream 0 of each thread' if args.per_thread else 'legacy stream 0':26} beside gantry  only beside")
    return len(problems) + compare(client, args.simulated, results.get("beside", {}), results["gantry"])
