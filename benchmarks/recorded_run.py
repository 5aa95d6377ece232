"""A run of measure.py as files of benchmarks/results: figures with machine, date, commit and commands.

Usage: measure.py record OUT [--results FOLDER] [--note TEXT …]

Writes DATE-COUNTxDEVICE-collectives.json (from any.json, registered.json and nccl.json) and DATE-COUNTxDEVICE-comm.json
(from comm.json and torch.json). From alloc.json come DATE-1xDEVICE-allocator.json and, unless its run was quick,
DATE-1xDEVICE-sequences.json. What the run lacks is left out. An existing file is refused, and so are figures of simulated
devices. Afterwards `measure.py page` writes docs/performance.md anew.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import alloc_peers
import compare
import result_files

FACTS = "run.json"  # what only the measuring machine knows
HOW = {"collectives": "A process per device under mpirun; graphs of captured calls; medians of the slowest rank. Every element was compared "
                      "with the definition. Rows with memory \"one process\": gantry's ranks are threads of one process.",
       "process": "One process; time to completion of calls in a row.",
       "allocator": "Host time of an allocation and its free; times of 8 threads are elapsed time divided by all pairs. Medians of the rounds, "
                    "each on another core, on which all peers took turns.",
       "sequences": "RMM's random_allocations (rmm:N,largest MiB) and a training loop of 32 layers whose shapes vary by 50 %. Host time of an "
                    "operation, and waste: 1 - peak live / peak reserved. A pass ends after 1.5 s (too slow)."}


def output_of(command, folder=None):
    """What a program prints; empty if it is not there or fails."""
    try:
        return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine_text():
    """Driver, CUDA and cores of this machine: "driver 580.159.04, CUDA 13.0.88, 32 cores"."""
    driver = pathlib.Path("/proc/driver/nvidia/version")
    versions = [re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", driver.read_text(encoding="utf-8")) if driver.exists() else None,
                re.search(r"release .*V([\d.]+)", output_of(["nvcc", "--version"]))]
    known = [f"{name} {found[1]}" for name, found in zip(("driver", "CUDA"), versions) if found]
    return ", ".join([*known, f"{os.cpu_count()} cores"])


def write_facts(out):
    """Notes in the run's folder what record() needs; measure.py calls it before it measures."""
    facts = {"date": datetime.date.today().isoformat(), "machine": machine_text(),
             "commit": output_of(["git", "describe", "--always", "--dirty", "--abbrev=12"], result_files.HERE) or None}
    (out / FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def commands_of(out, steps):
    """The commands of steps, each once, with names of programs and files in place of paths."""
    commands = {}
    for step in steps:
        log = out / f"{step}.txt"
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
            if not line.startswith("$ "):
                continue
            words = shlex.split(line[2:])
            if "-J" in words:  # where its rows went
                at = words.index("-J")
                del words[at:at + 2]
            kept = [short(word) for word in words if word not in ("--oversubscribe", sys.executable)]
            if "--draw" not in kept:
                commands[" ".join(kept)] = None
    return list(commands)


def short(word):
    name, separator, value = word.rpartition("=")
    if separator and "/" in value and not word.startswith("-"):  # VARIABLE=path
        return f"{name}={pathlib.Path(value).name}"
    if "/" not in word or word.startswith("-"):
        return shlex.quote(word)
    path = pathlib.Path(word)
    return f"benchmarks/{path.name}" if path.suffix == ".py" else path.name


def library_of(out):
    """What measured the rows of gantry, such as "gantry 0.2.0"."""
    reports = [read_json(out / f"{step}.json") for step in ("any", "registered", "local")]
    return next((report["library"] for report in reports if report), None)


def times_of(report, variants, mode="graph"):
    """{(operation, dtype, redop, bytes): row} of the rows that were measured and are right."""
    rows = report["rows"] if report else []
    return {(row["operation"], row["dtype"], row["redop"], row["bytes"]): row for row in rows
            if row["variant"] in variants and row["mode"] == mode and row["batches"] > 0 and not row["wrong"]}


def collective_rows(out):
    nccl = read_json(out / "nccl.json")
    peers = times_of(nccl, ["default"])
    symmetric = times_of(nccl, ["symmetric"])
    rows = []
    for step, memory, variant in (("any", "any", "auto"), ("registered", "registered", "auto registered"), ("local", "one process", "auto")):
        for key, ours in times_of(read_json(out / f"{step}.json"), [variant]).items():
            if key not in peers:
                continue
            operation, dtype, redop, size = key
            row = {"operation": operation, "dtype": dtype, "redop": None if redop in ("-", "") else redop, "bytes": size, "memory": memory,
                   **pair(ours["p50_us"], peers[key]["p50_us"])}
            if key in symmetric:
                time = symmetric[key]["p50_us"]
                row |= {"symmetric_us": round(time, 2), "symmetric_ratio": round(time / ours["p50_us"], 2)}
            rows.append(row)
    return rows


def pair(ours_us, peer_us):
    return {"gantry_us": round(ours_us, 2), "peer_us": round(peer_us, 2), "ratio": round(peer_us / ours_us, 2)}


def process_rows(out):
    ours, peer = read_json(out / "comm.json"), read_json(out / "torch.json")
    if ours is None or peer is None:
        return []
    return [{"name": name, **pair(microseconds, peer["results"][name])}
            for name, microseconds in compare.times_of(ours) if name in peer["results"]]


def is_peer(name):
    return not name.startswith("gantry")


def allocator_rows(alloc):
    """Times of single calls: medians of the rounds; for PyTorch also the ratio of each round."""
    micro = alloc["micro"]
    rows = []
    for key in dict.fromkeys(key for peers in micro for key in peers.get("gantry", {})):
        ours, raw = (alloc_peers.median_time(micro, name, key) for name in ("gantry", "gantry raw"))
        if raw is None:
            continue
        peers = {name: {"ns": rounded(alloc_peers.median_time(micro, name, key)),
                        "ratio": round(alloc_peers.median_ratio(micro, name, "gantry", key), 1)}
                 for name in dict.fromkeys(name for peers in micro for name in peers)
                 if is_peer(name) and alloc_peers.median_ratio(micro, name, "gantry", key) is not None}
        rounds = [round(peers["PyTorch"][key] / peers["gantry"][key], 1) for peers in micro
                  if key in peers.get("PyTorch", {}) and key in peers.get("gantry", {})]
        if peers:
            rows.append({"name": alloc_peers.titled(key), "gantry_ns": rounded(ours), "raw_pointers_ns": rounded(raw), "peers": peers,
                         **({"rounds": sorted(rounds)} if len(rounds) > 1 else {})})
    return rows


def sequence_rows(alloc):
    """How each allocator completed each sequence of allocations."""
    def outcome(result, live):
        if result["ooms"]:
            return {"outcome": "out of memory"}
        if result["done"] < result["operations"]:
            return {"outcome": "too slow", "done_percent": 100 * result["done"] // result["operations"]}
        waste = {"waste_percent": round(100 * (1 - live / result["peak_reserved"]), 1)} if result["peak_reserved"] else {}
        return {"outcome": "complete", "ns": rounded(result["warm_ns"] or result["first_ns"]), **waste}

    return [{"sequence": row["case"], "peak_live": alloc_peers.bytes_text(row["peak_live_bytes"]),
             "limit_factor": alloc_peers.LIMIT_FACTOR if row["limit_bytes"] else None,
             "results": {name: outcome(result, row["peak_live_bytes"]) for name, result in row["peers"].items()
                         if name == "gantry" or is_peer(name)}}
            for row in alloc["replay"] if any(is_peer(name) for name in row["peers"])]


def rounded(value):
    """Three significant digits."""
    return float(f"{value:.3g}")


def results_of(out, notes):
    """{last part of the file's name: result} of a run."""
    facts = read_json(out / FACTS)
    if facts is None:
        raise ValueError(f"{out}: expected a folder of measure.py with {FACTS}, but there is none")
    results = {}

    def add(name, kind, device, count, peer, steps, rows, library=None):
        if not rows:
            return
        if "Simulated" in device:
            raise ValueError(f"{out}: expected figures of GPUs, but got those of '{device}'")
        short_device = device.split()[-1].lower()
        results[f"{facts['date']}-{count}x{short_device}-{name}.json"] = {
            "schema": result_files.SCHEMA, "kind": kind, "date": facts["date"], "commit": facts["commit"],
            "machine": f"{count} × {device}, {facts['machine']}", "devices": count, "peer": peer, "how": HOW[kind],
            "commands": commands_of(out, steps), **({"library": library} if library else {}), **({"notes": notes} if notes else {}), "rows": rows}

    nccl = read_json(out / "nccl.json")
    if nccl is not None:
        add("collectives", "collectives", nccl["device"], nccl["ranks"], f"{nccl['library']}, multicast off",
            ["tune", "nccl", "any", "registered", "local"], collective_rows(out), library_of(out))
    comm, torch = read_json(out / "comm.json"), read_json(out / "torch.json")
    if comm is not None and torch is not None:
        add("comm", "process", comm["context"]["device"], int(comm["context"]["devices"]), f"PyTorch {torch['torch']}", ["comm"],
            process_rows(out))
    alloc = read_json(out / "alloc.json")
    if alloc is not None:
        names = dict.fromkeys(name for peers in alloc["micro"] for name in peers if is_peer(name) and peers[name])
        peer = ", ".join(dict.fromkeys(f"PyTorch {alloc['torch']}" if name.startswith("PyTorch") else name for name in names))
        for kind, rows in (("allocator", allocator_rows(alloc)), ("sequences", [] if alloc["quick"] else sequence_rows(alloc))):
            add(kind, kind, alloc["device"], 1, peer, ["alloc"], rows)
    if not results:
        raise ValueError(f"{out}: expected rows of gantry and of a peer, but got none")
    return results


def text_of(result):
    """One row a line, so that a change of a figure is a change of its line."""
    head = json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=2, ensure_ascii=False)
    rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in result["rows"])
    return f'{head[:-2]},\n  "rows": [\n    {rows}\n  ]\n}}\n'


def record(out, folder, notes):
    """Writes the results of the run in `out` into `folder`; all of them or none. Returns their paths."""
    results = {folder / name: result for name, result in results_of(out, notes).items()}
    for path, result in results.items():
        if path.exists():
            raise ValueError(f"{path}: expected a new file, but it exists")
        result_files.check_result(path, result)
    for path, result in results.items():
        path.write_text(text_of(result), encoding="utf-8")
    return list(results)


def main(arguments):
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="measure.py record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder of a run of measure.py")
    parser.add_argument("--results", type=pathlib.Path, default=result_files.RESULTS, help="where the files go")
    parser.add_argument("--note", action="append", default=[], help="a reservation about the figures")
    options = parser.parse_args(arguments)
    try:
        for path in record(options.out, options.results, options.note):
            print(f"wrote {path}")
    except ValueError as error:
        print(f"measure.py record: {error}", file=sys.stderr)
        return 1
    return 0
