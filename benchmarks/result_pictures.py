"""The pictures of collectives in docs/pictures, drawn by gantry-bench from the newest results of their machines.

Usage: measure.py pictures BUILD [--check]

BUILD is a build tree with gantry-bench. With --check the pictures are compared, and nothing is written.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from result_files import PROJECT, read_results

PICTURES = PROJECT / "docs" / "pictures"
OTHERS = ("all_gather", "all_to_all", "broadcast", "reduce", "reduce_scatter")
CHARTS = {f"{name}-{devices}xh200.svg": (devices, operations)
          for devices in (4, 8) for name, operations in (("all-reduce", ("all_reduce",)), ("collectives", OTHERS))}
VARIANTS = {"any": "auto", "registered": "auto registered"}
SIZED_BY_ALL = ("all_gather", "all_to_all", "reduce_scatter")


def bus_factor(operation, ranks):
    """As gantry-bench counts bus bandwidth."""
    others = (ranks - 1) / ranks
    return 2 * others if operation == "all_reduce" else others if operation in SIZED_BY_ALL else 1


def newest(results, devices):
    found = [result for result in results if result["kind"] == "collectives" and result["devices"] == devices]
    if not found:
        raise ValueError(f"expected results of collectives on {devices} devices, but there are none")
    return found[-1]


def report_of(result, library, rows):
    """The rows (operation, bytes, variant, time) as a report of gantry-bench."""
    ranks = result["devices"]
    entries = []
    for operation, size, variant, time in rows:
        bandwidth = size / time / 1000
        entries.append({"operation": operation, "dtype": "f32", "redop": "sum", "root": -1, "bytes": size, "count": size // 4,
                        "variant": variant, "algorithm": "auto", "mode": "graph", "in_place": False, "calls": 1, "batches": 1,
                        "time_us": time, "min_us": time, "p50_us": time, "p99_us": time, "algbw_gbs": bandwidth,
                        "busbw_gbs": bandwidth * bus_factor(operation, ranks), "wrong": 0, "note": ""})
    device = re.match(r"\d+ × ([^,]+)", result["machine"])[1]
    return {"schema": "gantry-collectives-1", "library": library, "device": device, "ranks": ranks, "launched_by": "openmpi",
            "rows": entries}


def reports_of(result, operations):
    """The reports of gantry, and of its peer."""
    ours, peers = [], {}
    for row in result["rows"]:
        if row["operation"] not in operations or row["memory"] not in VARIANTS:
            continue
        operation, size = row["operation"], row["bytes"]
        ours.append((operation, size, VARIANTS[row["memory"]], row["gantry_us"]))
        peers[operation, "default", size] = row["peer_us"]
        if "symmetric_us" in row:
            peers[operation, "symmetric", size] = row["symmetric_us"]
    theirs = [(operation, size, variant, time) for (operation, variant, size), time in sorted(peers.items())]
    return (report_of(result, result.get("library", "gantry"), sorted(ours, key=lambda row: (row[0], row[2], row[1]))),
            report_of(result, result["peer"].split(",")[0], theirs))


def draw(program, reports, picture):
    """Draws reports, the first beside the others."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, report in enumerate(reports):
            files.append(pathlib.Path(folder) / f"{number}.json")
            files[-1].write_text(json.dumps(report), encoding="utf-8")
        beside = [word for file in files[1:] for word in ("--compare", file)]
        subprocess.run([program, "--draw", files[0], *beside, "--svg", picture], check=True, stdout=subprocess.DEVNULL)


def main(arguments):
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="measure.py pictures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="build tree of gantry")
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args(arguments)
    results, code = read_results(), 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (devices, operations) in CHARTS.items():
            drawn = pathlib.Path(folder) / name
            draw(options.build / "bin" / "gantry-bench", reports_of(newest(results, devices), operations), drawn)
            text = drawn.read_text(encoding="utf-8")
            if not options.check:
                (PICTURES / name).write_text(text, encoding="utf-8")
            elif (PICTURES / name).read_text(encoding="utf-8") != text:
                print(f"{PICTURES / name}: expected what benchmarks/measure.py pictures draws; run it, and commit the picture", file=sys.stderr)
                code = 1
    return code
