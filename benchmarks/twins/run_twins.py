#!/usr/bin/env python3
"""Times recipes of examples/recipes beside twins that do the same with libtorch, on one GPU, or on CPUs where there is none.

Usage: run_twins.py BUILD [--quick] [--turns N] [--record FILE]

BUILD is gantry's build tree; torch comes from this Python, and the twins are compiled against its libraries. Both sides run in
turns, each for the same steps; a time is the least of the turns'. A ratio is the twin's time divided by the recipe's. The two
draw different numbers, so their losses at the end are near each other: exit code 1 if they are further apart than 15 %.
--quick takes sizes for a CPU, where the figures mean little. --record writes a file for benchmarks/results. Exit code 77 if
this Python has no torch.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
MOST_APART = 0.15
MOST_SECONDS = 60  # of a program
RECIPES = {  # arguments, and those of --quick
    "mlp_restart": (["160", "16384", "4096"], ["160", "512", "512"]),  # steps, rows, width
    "sharded_optimiser": (["128"], ["12"]),  # factor of all sizes
}


def build_twins(folder):
    """Compiles the twins into `folder`, at the same time. Returns torch's version, the GPU's name if there is one, and CUDA's version."""
    import torch
    from torch.utils import cpp_extension

    libraries = pathlib.Path(torch.__file__).parent / "lib"
    names = [name for name in ("torch", "torch_cpu", "c10", "torch_cuda", "c10_cuda") if (libraries / f"lib{name}.so").exists()]
    includes = [word for path in cpp_extension.include_paths() for word in ("-isystem", path)]
    options = ["-std=c++20", "-O2", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", *includes]
    link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", *(f"-l{name}" for name in names)]
    runs = [subprocess.Popen([os.environ.get("CXX", "c++"), *options, HERE / f"{recipe}.cpp", "-o", folder / recipe, *link]) for recipe in RECIPES]
    if any([run.wait() for run in runs]):
        sys.exit("run_twins.py: a twin was not compiled")
    return torch.__version__.partition("+")[0], torch.cuda.get_device_name() if torch.cuda.is_available() else None, torch.version.cuda


def run(program, arguments, folder, has_gpu):
    """The seconds and the last loss that the program prints."""
    environment = dict(os.environ)
    if not has_gpu:
        environment.setdefault("GANTRY_SIM_DEVICES", "1")
    try:
        done = subprocess.run([program, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        sys.exit(f"{program}: expected an end within {MOST_SECONDS} s")
    seconds = re.findall(r"^seconds: (\S+)$", done.stdout, re.MULTILINE)
    losses = re.findall(r"\bloss (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not seconds or not losses:
        sys.exit(f"{program}: expected a loss and seconds, but got exit code {done.returncode} and:\n{done.stdout}")
    return float(seconds[-1]), float(losses[-1])


def compare(recipe, programs, arguments, turns, scratch, has_gpu):
    """The row of a recipe, and whether both sides have the same loss but for the numbers drawn."""
    measured = {side: [] for side in programs}
    for _ in range(turns):
        for side, program in programs.items():
            measured[side].append(run(program, arguments, scratch, has_gpu))
    seconds = {side: min(seconds for seconds, _ in runs) for side, runs in measured.items()}
    losses = {side: runs[-1][1] for side, runs in measured.items()}
    row = {"name": shlex.join([recipe, *arguments]), "gantry_s": round(seconds["recipe"], 5), "peer_s": round(seconds["twin"], 5),
           "ratio": round(seconds["twin"] / seconds["recipe"], 3), "gantry_loss": losses["recipe"], "peer_loss": losses["twin"]}
    return row, abs(losses["recipe"] / losses["twin"] - 1) <= MOST_APART


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--record", type=pathlib.Path)
    options = parser.parse_args()
    binaries = options.build.resolve() / "bin"
    with tempfile.TemporaryDirectory() as text:
        scratch = pathlib.Path(text)
        if importlib.util.find_spec("torch") is None:
            for recipe, arguments in RECIPES.items():
                run(binaries / recipe, arguments[options.quick], scratch, False)
            print("run_twins.py: the recipes ran without their twins, as this Python has no torch")
            return SKIPPED
        (scratch / "twins").mkdir()
        start = time.monotonic()
        version, gpu, cuda = build_twins(scratch / "twins")
        print(f"run_twins.py: compiled the twins in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        rows, apart = [], []
        print(f"{'recipe':34}{'gantry s':>10}{'libtorch s':>12}{'ratio':>7}   losses", flush=True)
        for recipe, arguments in RECIPES.items():
            programs = {"recipe": binaries / recipe, "twin": scratch / "twins" / recipe}
            row, is_near = compare(recipe, programs, arguments[options.quick], options.turns, scratch, gpu is not None)
            print(f"{row['name']:34}{row['gantry_s']:10.4f}{row['peer_s']:12.4f}{row['ratio']:7.2f}   "
                  f"{row['gantry_loss']:g}, {row['peer_loss']:g}", flush=True)
            rows.append(row)
            if not is_near:
                apart.append(recipe)
    if apart:
        print(f"run_twins.py: expected losses within {MOST_APART:.0%} of each other, but not of {', '.join(apart)}", file=sys.stderr)
        return 1
    if options.record:
        result = {"schema": "gantry-results-1", "kind": "twins", "date": datetime.date.today().isoformat(), "commit": None,
                  "machine": f"1 × {gpu}, CUDA {cuda}" if gpu else "CPU", "devices": int(gpu is not None), "peer": f"libtorch {version}",
                  "how": f"the least of {options.turns} turns", "commands": [shlex.join(["benchmarks/twins/run_twins.py", "build/auto", *sys.argv[2:]])]}
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        options.record.write_text(json.dumps(result, indent=2, ensure_ascii=False)[:-2] + ',\n  "rows": [\n' + lines + "\n  ]\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
