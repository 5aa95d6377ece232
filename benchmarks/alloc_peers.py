#!/usr/bin/env python3
"""Measures gantry's allocator beside others in one run and prints Markdown tables.

Peers: PyTorch's caching allocator, default and with expandable segments (where torch is importable), cudaMallocAsync (where the
toolkit is), RMM's pool (with --rmm). Every peer is a small program of benchmarks/alloc, timed by the same code and fed with
the same sequences, which gantry-replay writes.

  cmake --build build --target gantry-replay alloc_peer_gantry
  benchmarks/alloc_peers.py build [--quick | --full] [--json FILE]

RMM comes from PyPI; the two wheels are unpacked without installing them:
  pip download --no-deps -d wheels librmm-cu13 'rapids-logger==0.3.*' && for w in wheels/*.whl; do unzip -qo $w -d rmm; done
  benchmarks/alloc_peers.py build --rmm rmm
--rounds N measures the times of single calls N times, all peers in turn on one core and then on another: on a machine whose cores
are shared with others, a core is as busy for one peer as for the next. Told are medians of times and of ratios.
--compile-only builds the peers into WORK (--work, default build/alloc_peers) and measures nothing; what lies there is used as it
is when its sources are not newer, so the folder can be carried to a machine that has no RMM.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
LIMIT_FACTOR = 1.05


def log(text):
    print(text, file=sys.stderr, flush=True)


# --- building -------------------------------------------------------------------------------------------------------------------


def compile_peer(work, name, flags):
    """Compiles alloc/peer_<name>.cpp unless that was done; returns the program or None."""
    source = HERE / "alloc" / f"peer_{name}.cpp"
    program = work / f"peer_{name}"
    newest = max(path.stat().st_mtime for path in (source, HERE / "alloc" / "peer.hpp", HERE / "alloc" / "steps.hpp"))
    if program.exists() and (flags is None or program.stat().st_mtime >= newest):
        return program
    if flags is None:
        return None
    # Sources and libraries first: the linker takes libraries in order.
    command = ["g++", "-std=c++20", "-O2", "-DNDEBUG", "-pthread", str(source), "-o", str(program), "-Wl,-rpath,$ORIGIN", *flags]
    log("compiling " + program.name)
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        log(f"{program.name} is left out, it does not compile: {' '.join(command)}\n{result.stdout[-3000:]}")
        return None
    return program


def cuda_flags():
    if not (CUDA / "include" / "cuda_runtime_api.h").exists():
        return None
    return ["-isystem", f"{CUDA}/include", f"-L{CUDA}/lib64", f"-Wl,-rpath,{CUDA}/lib64", "-lcudart"]


def torch_flags():
    try:
        import torch
        from torch.utils import cpp_extension
    except ImportError:
        return None
    if cuda_flags() is None or torch.version.cuda is None:
        return None
    library = pathlib.Path(torch.__file__).parent / "lib"
    abi = int(torch.compiled_with_cxx11_abi())
    includes = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
    return [f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *includes, f"-L{library}", f"-Wl,-rpath,{library}", "-Wl,--no-as-needed",
            "-lc10_cuda", "-lc10", *cuda_flags()]


def rmm_flags(rmm, work):
    if rmm is None or cuda_flags() is None:
        return None
    libraries = [rmm / "librmm" / "lib64" / "librmm.so", rmm / "rapids_logger" / "lib64" / "librapids_logger.so"]
    for library in libraries:
        shutil.copy2(library, work / library.name)
    # RMM brings the CCCL that it was built with; the toolkit's own must not come first.
    return [f"-I{rmm}/librmm/include/rapids", f"-I{rmm}/librmm/include", f"-I{rmm}/rapids_logger/include",
            *[str(work / library.name) for library in libraries], *cuda_flags()]


def find_program(build, name):
    for folder in (build / "bin", build, build / "benchmarks"):
        if (folder / name).exists():
            return folder / name
    sys.exit(f"{name} was not found in {build}; build it first: cmake --build {build} --target gantry-replay alloc_peer_gantry")


def make_peers(arguments, work):
    """(name, command, environment) of every peer that is here, gantry first."""
    gantry = [str(find_program(arguments.build, "alloc_peer_gantry"))]
    peers = [
        ("gantry", gantry, {"GANTRY_ALLOC_CONF": "backend:vmm"}),
        ("gantry raw", [*gantry, "--raw"], {"GANTRY_ALLOC_CONF": "backend:vmm"}),
        ("gantry native", gantry, {"GANTRY_ALLOC_CONF": "backend:native"}),
        ("gantry async", gantry, {"GANTRY_ALLOC_CONF": "backend:async"}),
    ]
    torch = compile_peer(work, "torch", torch_flags())
    if torch:
        peers.append(("PyTorch", [str(torch)], {"PYTORCH_CUDA_ALLOC_CONF": ""}))
        peers.append(("PyTorch expandable", [str(torch)], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))
    cuda_async = compile_peer(work, "async", cuda_flags())
    if cuda_async:
        peers.append(("cudaMallocAsync", [str(cuda_async)], {}))
    rmm = compile_peer(work, "rmm", rmm_flags(arguments.rmm, work))
    if rmm:
        peers.append(("RMM pool", [str(rmm)], {}))
    return peers


# --- measuring ------------------------------------------------------------------------------------------------------------------


def run_peer(peer, arguments, timeout):
    """The lines that a peer printed; those before the timeout if it took too long."""
    name, command, environment = peer
    start = time.monotonic()
    try:
        result = subprocess.run([*command, *arguments], env={**os.environ, **environment}, timeout=timeout,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        text, problem = result.stdout, result.stderr.strip()[-500:] if result.returncode != 0 else ""
    except subprocess.TimeoutExpired as error:
        text, problem = (error.stdout or b"").decode(), f"stopped after {timeout} s"
    if problem:
        log(f"{name}: {problem}")
    log(f"{name} {arguments[0]}: {time.monotonic() - start:.1f} s")
    return text.splitlines()


def cases(arguments):
    if arguments.quick:
        return ["rmm:1000,1", "rmm:1000,64", "rmm:1000,4096", "training:steps=20"]
    sizes = (1, 4, 64, 256, 1024, 4096)
    rmm = [f"rmm:{count},{size}" for count in (1000, 10000) for size in sizes]
    rmm += [f"rmm:100000,{size}" for size in (sizes if arguments.full else (64,))]
    return [*rmm, "training"]


def write_dumps(arguments, work):
    """{case: (dump, peak live bytes)}"""
    replay = find_program(arguments.build, "gantry-replay")
    dumps = {}
    for case in cases(arguments):
        path = work / (case.replace(":", "_").replace(",", "_").replace("=", "_") + ".gantseq")
        subprocess.run([str(replay), "--workload", case, "--dump", str(path)], check=True)
        dumps[case] = (path, int.from_bytes(path.read_bytes()[16:24], "little"))
    return dumps


def measure_micro(arguments, peers):
    """The rounds: for each {peer: {name: ns}}."""
    cores = sorted(os.sched_getaffinity(0))
    rounds = []
    for index in range(arguments.rounds):
        core = cores[index * len(cores) // arguments.rounds]
        rounds.append({})
        first = index % len(peers)  # A core may be busier when a round begins.
        for peer in [*peers[first:], *peers[:first]]:
            lines = run_peer(peer, ["micro", *(["--quick"] if arguments.quick else []), str(core)], 60)
            rounds[-1][peer[0]] = {key: float(value) for key, value in (line.split() for line in lines)}
    return rounds


def measure(arguments, work, peers):
    dumps = write_dumps(arguments, work)
    jobs = [(case, limit, f"{path}@{limit}") for case, (path, live) in dumps.items() for limit in (0, int(live * LIMIT_FACTOR))]
    micro = measure_micro(arguments, peers)
    replays = {}
    for peer in peers:
        name = peer[0]
        if name == "gantry raw":
            continue
        lines = run_peer(peer, ["replay", "0.3" if arguments.quick else "1.5", *[job[2] for job in jobs]], 60)
        replays[name] = {line.split()[1]: [float(word) for word in line.split()[2:]] for line in lines}
    rows = []
    for case, limit, key in jobs:
        row = {"case": case, "limit_bytes": limit, "peak_live_bytes": dumps[case][1], "peers": {}}
        for name, results in replays.items():
            if key in results:
                first, warm, reserved, ooms, done, ops = results[key]
                row["peers"][name] = {"first_ns": first, "warm_ns": warm, "peak_reserved": reserved, "ooms": int(ooms),
                                      "done": int(done), "operations": int(ops)}
        rows.append(row)
    return {"micro": micro, "replay": rows}


# --- tables ---------------------------------------------------------------------------------------------------------------------


def bytes_text(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}" if count % size == 0 else f"{count / size:.3g} {unit}"
    return f"{count} B"


def time_text(ns):
    return f"{ns:.3g} ns" if ns < 999.5 else f"{ns / 1e3:.3g} µs" if ns < 999.5e3 else f"{ns / 1e6:.3g} ms"


def titled(name):
    kind, _, rest = name.removeprefix("alloc/").partition("/")
    if kind == "pair":
        return f"pair, {bytes_text(int(rest))}"
    if kind == "live_set":
        return "live set of 1,000"
    what = "pair, 4 KiB" if rest == "pair_4096" else "live set of 16 each"
    return f"{kind.removeprefix('threads')} thread{'s' if kind != 'threads1' else ''}: {what}"


def median_time(micro, name, key):
    """Of one peer over the rounds that have it."""
    times = [peers[name][key] for peers in micro if key in peers.get(name, {})]
    return statistics.median(times) if times else None


def median_ratio(micro, name, ours, key):
    """How many times as long `name` takes as `ours`, over the rounds that have both."""
    ratios = [peers[name][key] / peers[ours][key] for peers in micro if key in peers.get(name, {}) and key in peers.get(ours, {})]
    return statistics.median(ratios) if ratios else None


def micro_table(micro):
    peers = list(dict.fromkeys(name for peers in micro for name in peers if peers[name]))
    others = [name for name in peers if not name.startswith("gantry")]
    if not peers:
        return ["Nothing could be measured."]
    ours = peers[0]
    head = ["host time per alloc + free", *peers, *[f"{name} / {ours}" for name in others]]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for key in dict.fromkeys(key for peers in micro for key in peers.get(ours, {})):
        times = [median_time(micro, name, key) for name in peers]
        ratios = [median_ratio(micro, name, ours, key) for name in others]
        cells = [titled(key), *["–" if time is None else time_text(time) for time in times],
                 *["–" if ratio is None else f"{ratio:.1f}" for ratio in ratios]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def replay_cell(result, live):
    if result is None:
        return "not measured"
    if result["ooms"]:
        return "**out of memory**"
    if result["done"] < result["operations"]:
        return f"too slow ({100 * result['done'] // result['operations']} % done)"
    reserved = result["peak_reserved"]
    waste = f"{100 * (1 - live / reserved):.1f} %" if reserved else "–"
    return f"{time_text(result['warm_ns'] or result['first_ns'])}, {waste}"


def replay_table(rows):
    names = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    lines = ["| sequence | limit | " + " | ".join(names) + " |", "| --- | --- |" + " ---: |" * len(names)]
    for row in rows:
        limit = f"{LIMIT_FACTOR} × peak live" if row["limit_bytes"] else "none"
        cells = [replay_cell(row["peers"].get(name), row["peak_live_bytes"]) for name in names]
        lines.append(f"| {row['case']} ({bytes_text(row['peak_live_bytes'])}) | {limit} | " + " | ".join(cells) + " |")
    return lines


def summary(results):
    """The ratios that matter, against PyTorch as it comes."""
    micro, lines = results["micro"], []
    for ours in ("gantry raw", "gantry"):
        keys = dict.fromkeys(key for peers in micro for key in peers.get(ours, {}))
        common = {key: ratio for key in keys if (ratio := median_ratio(micro, "PyTorch", ours, key)) is not None}
        pairs = [ratio for key, ratio in common.items() if key.startswith("alloc/pair/")]
        if pairs:
            lines.append(f"- {ours}, against PyTorch: pairs {min(pairs):.1f}× to {max(pairs):.1f}×, live set "
                         f"{common['alloc/live_set']:.1f}×, 8 threads {common['alloc/threads8/pair_4096']:.0f}× (pairs) and "
                         f"{common['alloc/threads8/live_set_16']:.0f}× (live sets)")
    for name in dict.fromkeys(name for row in results["replay"] for name in row["peers"]):
        limited = [row["peers"][name] for row in results["replay"] if row["limit_bytes"] and name in row["peers"]]
        done = sum(result["ooms"] == 0 and result["done"] == result["operations"] for result in limited)
        lines.append(f"- {name}: {done} of {len(limited)} sequences complete within {LIMIT_FACTOR} × peak live")
    return lines


def device():
    """Name and driver of the first GPU: ("NVIDIA H200", "580.159.04")."""
    try:
        query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                               stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "Simulated device", None
    name, _, driver = query.partition(", ")
    return name, driver


def torch_version():
    try:
        import torch
        return torch.__version__
    except ImportError:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="build tree of gantry")
    parser.add_argument("--work", type=pathlib.Path, help="folder of the peers' programs and the sequences")
    parser.add_argument("--rmm", type=pathlib.Path, help="folder with the unpacked wheels of librmm and rapids-logger")
    parser.add_argument("--json", type=pathlib.Path, help="writes all results")
    parser.add_argument("--quick", action="store_true", help="few sequences, short measurements")
    parser.add_argument("--rounds", type=int, default=1, help="of single calls")
    parser.add_argument("--full", action="store_true", help="all of RMM's parameters")
    parser.add_argument("--compile-only", action="store_true")
    arguments = parser.parse_args()
    work = (arguments.work or arguments.build / "alloc_peers").resolve()
    work.mkdir(parents=True, exist_ok=True)
    if arguments.rmm:
        arguments.rmm = arguments.rmm.resolve()
    peers = make_peers(arguments, work)
    if arguments.compile_only:
        return
    name, driver = device()
    torch = torch_version()
    results = {"device": name, "torch": torch, "quick": arguments.quick, **measure(arguments, work, peers)}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    machine = ", ".join(filter(None, [name, driver, torch and f"PyTorch {torch}"]))
    print("\n".join([machine, "", *micro_table(results["micro"]), "",
                     "Sequences: host time per operation when warm, and waste (1 − peak live / peak reserved).", "",
                     *replay_table(results["replay"]), "", *summary(results)]))


if __name__ == "__main__":
    main()
