#!/usr/bin/env python3
"""Measures the stream sanitizer of gantry beside torch's CUDA sanitizer: host time of one operation, off and on.

Usage: peer_sanitizer.py BENCH        BENCH is the program bench of gantry's build; torch comes from this Python.
"""
import json
import os
import statistics
import subprocess
import sys
import time

OPERATIONS = ("add_", "add", "copy_", "wait")
BATCH = 200
ROUNDS = 30


def measure_torch():
    """Microseconds of each operation in this process, whose environment decides about the sanitizer."""
    import torch

    a = torch.ones(16, device="cuda")
    b = torch.ones(16, device="cuda")
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    calls = {"add_": lambda: a.add_(b), "add": lambda: torch.add(a, b), "copy_": lambda: a.copy_(b),
             "wait": lambda: second.wait_stream(first)}
    results = {}
    for name in OPERATIONS:
        calls[name]()
        times = []
        for _ in range(ROUNDS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(BATCH):
                calls[name]()
            times.append((time.perf_counter() - start) / BATCH)
        torch.cuda.synchronize()
        results[name] = statistics.median(times) * 1e6
    print(json.dumps(results))


def torch_times(sanitizer):
    environment = {**os.environ}
    environment.pop("TORCH_CUDA_SANITIZER", None)
    if sanitizer:
        environment["TORCH_CUDA_SANITIZER"] = "1"
    output = subprocess.run([sys.executable, __file__, "--torch"], env=environment, check=True, capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def gantry_times(bench):
    output = subprocess.run([bench, "--benchmark_filter=^sanitizer/", "--benchmark_format=json"], check=True,
                            capture_output=True, text=True)
    times = {}
    for result in json.loads(output.stdout)["benchmarks"]:
        if result.get("aggregate_name", "median") != "median":
            continue
        _, state, name = result["name"].split("/")[:3]
        scale = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[result["time_unit"]]
        times[state, name.removesuffix("_median") if "aggregate_name" in result else name] = result["real_time"] * scale
    return times


def main():
    if sys.argv[1:] == ["--torch"]:
        return measure_torch()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ours = gantry_times(sys.argv[1])
    try:
        theirs = {"off": torch_times(False), "on": torch_times(True)}
    except subprocess.CalledProcessError as error:
        print(f"torch was not measured: {(error.stderr.strip() or 'failed').splitlines()[-1]}", file=sys.stderr)
        theirs = {"off": {}, "on": {}}
    print("operation | gantry off, us | gantry on, us | torch off, us | torch on, us")
    for name in OPERATIONS:
        cells = [ours.get(("off", name)), ours.get(("on", name)), theirs["off"].get(name), theirs["on"].get(name)]
        print(" | ".join([name, *("-" if cell is None else f"{cell:.2f}" for cell in cells)]))
    return None


if __name__ == "__main__":
    main()
