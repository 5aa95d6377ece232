#!/usr/bin/env python3
"""Times every family of operations over shapes of many kinds, every dim and dtype, beside PyTorch, and tells where it is behind.

Usage: sweep.py SWEEP [--place cpu|cuda] [--seed N --rows N] [--families NAME ...] [--record FILE] [--rounds N] [--turns N]
       sweep.py --list SHAPE

SWEEP is the program sweep of gantry's build; torch comes from this Python. Both take the same rows in turns, on one thread of a
CPU or on one GPU; a time is the fastest of the turns' medians. --seed draws shapes instead of the listed ones. A ratio is
PyTorch's time divided by gantry's. A family's line has the geometric mean, the number of rows below 0.95, 0.8 and 0.7, and the
least rows by name. --record writes a file for benchmarks/results. --list prints the rows of a shape, such as 6x7x5.
"""
import argparse
import collections
import datetime
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import time

SHAPES = {
    "cuda": ["16384x4096", "64x1000000", "1000000x64", "128x768x512", "300x5000x6", "513x1031x63", "20000000", "32x4099", "256x256"],
    "cpu": ["1024x2048", "8x50257", "30000x64", "16x256x512", "60x500x7", "65x129x31", "1000000", "12x1031", "256x256"],
}
FLOATS, ALL = ("f32", "bf16"), ("f32", "bf16", "i64")
FLAT = {  # families without a dim, and their dtypes
    "exp": FLOATS, "tanh": FLOATS, "gelu": FLOATS, "sigmoid": FLOATS, "erf": FLOATS, "abs": FLOATS, "pow3": FLOATS, "add_scalar": ALL,
    "clamp": ALL, "to_other": ALL, "add": ALL, "mul": ALL, "compare": ALL, "maximum": ALL, "where": ALL, "tril": FLOATS,
    "masked_select": FLOATS, "nonzero": FLOATS, "unique": ("f32", "i64"), "uniform": FLOATS, "normal": FLOATS, "randperm": ("f32",),
    "mm_64": FLOATS, "mm_64t": FLOATS, "mv": FLOATS,
}
ALONG = {  # families along a dim
    "add_row": FLOATS, "slice": FLOATS, "flip": FLOATS, "roll": FLOATS, "cat": FLOATS, "stack": FLOATS, "transpose": FLOATS, "sum": ALL,
    "mean": FLOATS, "amax": ALL, "prod": FLOATS, "any": ("f32",), "argmax": ALL, "var": FLOATS, "var_mean": FLOATS, "norm": FLOATS,
    "logsumexp": FLOATS, "softmax": FLOATS, "log_softmax": FLOATS, "cumsum": ALL, "cumprod": ("f32",), "cummax": ("f32",),
    "index_select": FLOATS, "index_add": FLOATS, "gather": FLOATS, "scatter_add": FLOATS, "sort": ALL, "topk": ("f32",),
}
MATRICES = ("tril", "mm_64", "mm_64t", "mv")  # at least two dims
ONE_DIM = ("randperm",)


def sizes_of(shape):
    return [int(size) for size in shape.split("x")]


def rows_of(shape):
    sizes = sizes_of(shape)
    for family, dtypes in FLAT.items():
        if family in MATRICES and len(sizes) < 2 or family in ONE_DIM and len(sizes) > 1:
            continue
        yield from (f"{family} {shape} 0 {dtype}" for dtype in dtypes)
    for family, dtypes in ALONG.items():
        for dim, size in enumerate(sizes):
            if family == "transpose" and dim + 1 == len(sizes) or family == "slice" and size < 3 or family == "topk" and size < 5:
                continue
            yield from (f"{family} {shape} {dim} {dtype}" for dtype in dtypes)


def drawn_shapes(place, seed, count):
    """Shapes of one to three dims, whose numbers of elements and sizes are drawn on logarithmic scales."""
    draw = random.Random(seed)
    least, most = (1e4, 4e6) if place == "cpu" else (1e4, 1e8)
    for _ in range(count):
        numel = math.exp(draw.uniform(math.log(least), math.log(most)))
        sizes = []
        for left in range(draw.randint(1, 3), 0, -1):
            size = numel if left == 1 else math.exp(draw.uniform(0, math.log(numel)))
            sizes.append(max(1, round(size)))
            numel = max(1, numel / sizes[-1])
        draw.shuffle(sizes)
        yield "x".join(map(str, sizes))


def chosen_rows(options):
    if options.seed is None:
        rows = [row for shape in SHAPES[options.place] for row in rows_of(shape)]
    else:
        draw = random.Random(options.seed)
        rows = [draw.choice(list(rows_of(shape))) for shape in drawn_shapes(options.place, options.seed, options.rows)]
    return [row for row in rows if not options.families or row.split()[0] in options.families]


def torch_families(torch):
    flat = {
        "exp": lambda x: x.exp(), "tanh": lambda x: x.tanh(), "gelu": torch.nn.functional.gelu, "sigmoid": lambda x: x.sigmoid(),
        "erf": lambda x: x.erf(), "abs": lambda x: x.abs(), "pow3": lambda x: x.pow(3.0), "add_scalar": lambda x: x + 1,
        "clamp": lambda x: x.clamp(-1, 1), "to_other": lambda x: x.to(torch.bfloat16 if x.dtype == torch.float32 else torch.float32),
        "tril": lambda x: x.tril(), "nonzero": lambda x: (x > 0).nonzero(), "unique": lambda x: x.unique(),
        "uniform": lambda x: x.uniform_(), "normal": lambda x: x.normal_(), "randperm": lambda x: torch.randperm(x.numel(), device=x.device),
    }
    two = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y, "compare": lambda x, y: x > y, "maximum": torch.maximum}
    along = {
        "slice": lambda x, d: x.narrow(d, 1, x.size(d) - 2) + 1, "flip": lambda x, d: x.flip(d), "roll": lambda x, d: x.roll(1, d),
        "cat": lambda x, d: torch.cat([x, x], d), "stack": lambda x, d: torch.stack([x, x], d),
        "transpose": lambda x, d: x.transpose(d, d + 1).contiguous(), "sum": lambda x, d: x.sum(d), "mean": lambda x, d: x.mean(d),
        "amax": lambda x, d: x.amax(d), "prod": lambda x, d: x.prod(d), "any": lambda x, d: x.any(d), "argmax": lambda x, d: x.argmax(d),
        "var": lambda x, d: x.var(d), "var_mean": lambda x, d: torch.var_mean(x, d), "norm": lambda x, d: x.norm(2, d),
        "logsumexp": lambda x, d: x.logsumexp(d), "softmax": lambda x, d: x.softmax(d), "log_softmax": lambda x, d: x.log_softmax(d),
        "cumsum": lambda x, d: x.cumsum(d), "cumprod": lambda x, d: x.cumprod(d), "cummax": lambda x, d: x.cummax(d),
        "sort": lambda x, d: x.sort(d), "topk": lambda x, d: x.topk(5, d),
    }
    entries = {"index_select": lambda x, d, i: x.index_select(d, i), "index_add": lambda x, d, i: x.index_add(d, i, x)}
    elements = {"gather": lambda x, d, i: x.gather(d, i), "scatter_add": lambda x, d, i: x.scatter_add(d, i, x)}

    def call_of(family, x, dim):
        if family in flat:
            return lambda: flat[family](x)
        if family in two:
            y = x.flip(0).contiguous()
            return lambda: two[family](x, y)
        if family in along:
            return lambda: along[family](x, dim)
        if family in entries:
            index = torch.randint(x.size(dim), (x.size(dim),), device=x.device)
            return lambda: entries[family](x, dim, index)
        if family in elements:
            index = torch.randint(x.size(dim), x.shape, device=x.device)
            return lambda: elements[family](x, dim, index)
        if family == "add_row":
            row = x.narrow(dim, 0, 1).contiguous()
            return lambda: x + row
        if family in ("where", "masked_select"):
            mask, y = x > 0, x.flip(0).contiguous()
            return lambda: torch.where(mask, x, y) if family == "where" else x.masked_select(mask)
        y = {"mm_64": lambda n: torch.randn(n, 64), "mm_64t": lambda n: torch.randn(64, n).t(), "mv": torch.randn}[family](x.size(-1))
        y = y.to(x.device, x.dtype)
        return lambda: x.matmul(y)

    return call_of


def measure_torch(place, rounds):
    """Rows of stdin, each with its microseconds: what sweep.cpp does."""
    import torch

    torch.set_num_threads(1)
    device = "cpu" if place == "cpu" else "cuda"
    call_of = torch_families(torch)
    for line in sys.stdin.read().splitlines():
        family, shape, dim, dtype = line.split()
        sizes = sizes_of(shape)
        if dtype == "i64":
            x = torch.randint(-1000, 1000, sizes, device=device)
        else:
            x = torch.randn(sizes, device=device).to(torch.float32 if dtype == "f32" else torch.bfloat16)
        try:
            call = call_of(family, x, int(dim))

            def once(calls):
                start = time.perf_counter()
                for _ in range(calls):
                    call()
                if place == "cuda":
                    torch.cuda.synchronize()
                return (time.perf_counter() - start) / calls * 1e6

            once(1)
            first = once(1)
            calls = 10 if place == "cuda" else min(max(int(2000 / first), 1), 100)
            print(line, round(statistics.median(once(calls) for _ in range(rounds)), 3), flush=True)
        except RuntimeError as error:
            print(f"{line}: {str(error).splitlines()[0]}", file=sys.stderr)


def times(command, rows, place):
    environment = {"GANTRY_SIM_DEVICES": "1", **os.environ} if place == "cpu" else dict(os.environ)
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, input="\n".join(rows) + "\n", text=True, stdout=subprocess.PIPE, env=environment, check=False)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()}


def print_table(ratios):
    families = collections.defaultdict(dict)
    for row, ratio in ratios.items():
        families[row.split()[0]][row] = ratio
    print(f"{'family':14}{'rows':>5}{'mean':>7}{'<0.95':>7}{'<0.8':>6}{'<0.7':>6}  least")
    for family, part in families.items():
        least = ", ".join(f"{row.split(' ', 1)[1]} {ratio:.2f}" for row, ratio in sorted(part.items(), key=lambda one: one[1])[:3])
        print(f"{family:14}{line_of(part.values())}  {least}")
    print(f"{'all':14}{line_of(ratios.values())}")


def line_of(ratios):
    ratios = list(ratios)
    below = [sum(ratio < limit for ratio in ratios) for limit in (0.95, 0.8, 0.7)]
    return f"{len(ratios):5}{statistics.geometric_mean(ratios):7.2f}{below[0]:7}{below[1]:6}{below[2]:6}"


def record(options, rows):
    import torch

    if options.place == "cpu":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            machine = "one thread of " + next((line.split(":")[1].strip() for line in file if line.startswith("model name")), os.uname().machine)
    else:
        machine = f"1 × {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    result = {
        "schema": "gantry-results-1", "kind": "sweep", "date": datetime.date.today().isoformat(), "commit": None, "machine": machine,
        "devices": int(options.place == "cuda"), "peer": f"PyTorch {torch.__version__.split('+', maxsplit=1)[0]}",
        "how": f"the fastest of {options.turns} turns' medians of {options.rounds}", "commands": [shlex.join(["benchmarks/sweep.py", "SWEEP", *sys.argv[2:]])],
    }
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    with open(options.record, "w", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=2)[:-2] + ',\n  "rows": [\n' + lines + "\n  ]\n}\n")


def main():
    if sys.argv[1:2] == ["--torch"]:
        return measure_torch(sys.argv[2], int(sys.argv[3]))
    if sys.argv[1:2] == ["--list"]:
        print("\n".join(rows_of(sys.argv[2])))
        return None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep")
    parser.add_argument("--place", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--rows", type=int, default=300, help="of drawn shapes")
    parser.add_argument("--families", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--record")
    options = parser.parse_args()
    rows = chosen_rows(options)
    ours, theirs = [], []
    for _ in range(options.turns):
        ours.append(times([options.sweep, options.place, str(options.rounds)], rows, options.place))
        theirs.append(times([sys.executable, __file__, "--torch", options.place, str(options.rounds)], rows, options.place))
    least = [{row: min(turn[row] for turn in turns) for row in rows if all(row in turn for turn in turns)} for turns in (ours, theirs)]
    ratios = {row: least[1][row] / least[0][row] for row in rows if row in least[0] and row in least[1]}
    print_table(ratios)
    if options.record:
        record(options, [{"name": row, "gantry_us": least[0][row], "peer_us": least[1][row], "ratio": round(ratios[row], 3)} for row in ratios])
    return None


if __name__ == "__main__":
    sys.exit(main())
