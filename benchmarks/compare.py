#!/usr/bin/env python3
"""Puts bench's JSON beside peer_torch.py's and prints a Markdown table of ratios.

Usage: bench --benchmark_format=json > gantry.json; peer_torch.py > torch.json; compare.py gantry.json torch.json
"""
import json
import sys

UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def times_of(report):
    """Pairs of a measurement's name and its microseconds."""
    return [(run["name"].split("/iterations:")[0], run["real_time"] * UNITS[run["time_unit"]])
            for run in report["benchmarks"] if run.get("run_type") != "aggregate"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        ours = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        peer = json.load(file)
    context = ours["context"]
    print(f"{context.get('devices')} x {context.get('device')}, PyTorch {peer['torch']}\n")
    print("| measurement | gantry µs | PyTorch µs | PyTorch / gantry |")
    print("| --- | ---: | ---: | ---: |")
    failures = peer.get("failures", {})
    for name, microseconds in times_of(ours):
        if name not in peer["results"] and not failures:
            continue
        if name not in peer["results"]:
            print(f"| {name} | {microseconds:.2f} | {'failed' if name in failures else '—'} | — |")
            continue
        theirs = peer["results"][name]
        print(f"| {name} | {microseconds:.2f} | {theirs:.2f} | {theirs / microseconds:.2f} |")
    for name, cause in failures.items():
        print(f"\n- PyTorch, {name}: {cause}")


if __name__ == "__main__":
    main()
