#!/usr/bin/env python3
"""Measures kernels on CPU tensors beside PyTorch on one thread, in turns, and prints a table.

Usage: peer_cpu.py BENCH [--rounds 3] [--record FILE]

BENCH is the program bench of gantry's build; torch comes from this Python. A number is the fastest median of the rounds.
"small" is the time of a call on 16 elements from C++, which Python cannot be compared with: it is printed for gantry only.
--record writes a file for benchmarks/results.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time


def measure_torch():
    """Microseconds of each operation in this process."""
    import torch

    torch.set_num_threads(1)
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    m, n = torch.rand(1024, 1024), torch.rand(1024, 1024)
    calls = {
        "add": lambda: a + b, "add_": lambda: a.add_(b, alpha=0.0), "bias_add": lambda: a + b[0], "compare": lambda: a > b,
        "to_bf16": lambda: a.bfloat16(), "exp": lambda: a.exp(), "log": lambda: a.log(), "sin": lambda: a.sin(),
        "tanh": lambda: a.tanh(), "sigmoid": lambda: a.sigmoid(), "gelu": lambda: torch.nn.functional.gelu(a),
        "sum": lambda: a.sum(), "sum_dim0": lambda: a.sum(0), "sum_dim1": lambda: a.sum(1), "max": lambda: a.max(),
        "argmax": lambda: a.argmax(1), "cumsum": lambda: a.view(-1).cumsum(0), "softmax": lambda: a.softmax(1),
        "transpose": lambda: a.t().contiguous(), "uniform": lambda: a.uniform_(), "normal": lambda: a.normal_(),
        "matmul": lambda: m.mm(n),
    }
    results = {}
    for name, call in calls.items():
        call()
        times = []
        for _ in range(9):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        results[name] = statistics.median(times) * 1e6
    print(json.dumps({"version": torch.__version__.split("+")[0], "us": results}))


def torch_times():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    output = subprocess.run([sys.executable, __file__, "--torch"], env=environment, check=True, capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def gantry_times(bench):
    environment = {"GANTRY_SIM_DEVICES": "1", **os.environ}
    output = subprocess.run([bench, "--benchmark_filter=^cpu/", "--benchmark_format=json", "--benchmark_repetitions=3"],
                            env=environment, check=True, capture_output=True, text=True)
    times = {}
    for result in json.loads(output.stdout)["benchmarks"]:
        if result.get("aggregate_name") == "median":
            scale = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[result["time_unit"]]
            times[result["name"].split("/")[1]] = result["real_time"] * scale
    return times


def fastest(rounds):
    return {name: min(times[name] for times in rounds) for name in rounds[0]}


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), os.uname().machine)


def record(path, version, rows):
    result = {
        "schema": "gantry-results-1", "kind": "cpu", "date": datetime.date.today().isoformat(), "commit": None,
        "machine": f"1 thread of {processor()}", "devices": 0, "peer": f"PyTorch {version}",
        "how": "the fastest median of rounds in turns", "commands": ["benchmarks/peer_cpu.py BENCH --record FILE"],
    }
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=2)[:-2] + ',\n  "rows": [\n' + lines + "\n  ]\n}\n")


def main():
    if sys.argv[1:] == ["--torch"]:
        return measure_torch()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record")
    options = parser.parse_args()
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(gantry_times(options.bench))
        theirs.append(torch_times())
    ours, peer = fastest(ours), fastest([result["us"] for result in theirs])
    rows = []
    for name, microseconds in ours.items():
        row = {"name": name, "gantry_us": round(microseconds, 3)}
        if name in peer:
            row |= {"peer_us": round(peer[name], 3), "ratio": round(peer[name] / microseconds, 2)}
        rows.append(row)
        print(json.dumps(row))
    if options.record:
        record(options.record, theirs[0]["version"], rows)
    return None


if __name__ == "__main__":
    main()
