"""The page docs/performance.md, written from the results in benchmarks/results."""
import math
import textwrap

from result_files import PROJECT, RESULTS, read_results, require

PAGE = PROJECT / "docs" / "performance.md"
KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
COLLECTIVES = {"all_reduce": (4 * KIB, *SIZES),
               **dict.fromkeys(("reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "send_recv"), SIZES)}
PROCESS = ("comm/broadcast/4096", "comm/broadcast/1048576", "comm/broadcast/268435456",
           "comm/reduce_add/4096", "comm/reduce_add/1048576", "comm/reduce_add/268435456",
           "comm/scatter/4096", "comm/scatter/1048576", "comm/scatter/268435456",
           "comm/gather/4096", "comm/gather/1048576", "comm/gather/268435456",
           "comm/broadcast_coalesced/200x4KB", "comm/reduce_add_coalesced/200x4KB",
           "dispatch/add", "dispatch/add_", "dispatch/fill_", "dispatch/sum", "dispatch/empty", "dispatch/view", "dispatch/mm_64",
           "copy/h2d_pinned/268435456", "copy/d2d/4096", "copy/d2d/268435456", "copy/peer/4096", "copy/peer/268435456",
           "copy/cast_f32_f16/268435456", "copy/transposed/8192")
KERNELS = ("add", "bias_add", "exp", "fill", "sum", "sum_dim0", "sum_dim1", "max", "argmax", "cumsum", "cumsum_dim0", "softmax", "uniform",
           "normal", "transpose", "transpose_cast", "softmax_short", "softmax_long", "index_rows", "masked_select", "nonzero",
           "index_put", "scatter_add", "cummax", "searchsorted", "histc")
KERNEL_COLUMNS = (("f32, 1 MiB", f"kernel/{{}}/{MIB}"), ("f32, 256 MiB", f"kernel/{{}}/{256 * MIB}"),
                  ("bf16, 256 MiB", f"kernel/{{}}_bf16/{256 * MIB}"))
LARGE_COLUMNS = (("f32, 1 GiB", f"kernel/{{}}/{1024 * MIB}"), ("bf16, 1 GiB", f"kernel/{{}}_bf16/{1024 * MIB}"))
ORDERING_COLUMNS = (("f32, 1 MiB", f"kernel/{{}}/{MIB}"), ("f32, 64 MiB", f"kernel/{{}}/{64 * MIB}"),
                    ("bf16, 32 MiB", f"kernel/{{}}_bf16/{32 * MIB}"))
MATMUL_COLUMNS = (("f32", "matmul/{}"), ("bf16", "matmul_bf16/{}"))
MATRICES = (100, 128, 512, 1000, 1024, 2048, 4096, 8192)
ORDERINGS = ("sort", "argsort", "topk", "topk_rows", "median", "unique")
ALLOCATORS = ("PyTorch", "PyTorch expandable", "cudaMallocAsync", "RMM pool")

HEAD = """
# Performance

Every figure comes from a file of `benchmarks/results`, which names its date, machine and commands.
`benchmarks/measure.py page` writes this page from these files, and the test `benchmarks.page` compares them.
A ratio is the peer's time divided by gantry's in the same run: above 1, gantry is faster. Times move from machine to
machine, ratios less so.
"""

COLLECTIVES_TEXT = """
## Communicator beside NCCL

Graphs of captured calls, f32, sums, one process per device, memory of the allocator without a registration, default
NCCL; in brackets NCCL with symmetric windows. The figures of 8 GPUs are older than memory that is used
[in place](explanation/collectives.md#open-arrays) by itself: from 1 MiB on it is registered, but for all_reduce.
"""

PICTURE = """
![all_reduce on 8 H200: time and bus bandwidth against size, beside NCCL](pictures/all-reduce-8xh200.svg)

`gantry-bench --svg` draws such charts.
"""

PROCESS_TEXT = """
## One process beside PyTorch

`comm/…` is `gantry::comm` beside `torch.cuda.comm`. The other rows use one GPU, and the peer is PyTorch's C++ API.
Numbers in names are bytes. `dispatch` is host time of a call; the rest is time to completion of calls in a row.
"""

KERNEL_TEXT = """
## Kernels beside PyTorch

One GPU, time to completion of calls in a row. Sizes are input sizes, or output sizes where there is no input.
Matrices are square, but rows of `softmax_short` have 128 elements and rows of `softmax_long` 65,536. `scatter_add`
sums in a fixed order, PyTorch's in the order in which its atomic operations happen to come.

Memory of the H200 moves about 4.2 TB/s, memory of the H100 3.0: a copy of 256 MiB takes 130 and 180 µs. `scatter_add`
of 64 Mi elements puts them into a stable order by the 23 bits of their destinations. Three passes of a radix sort
read and write 8 bytes an element each: 3.2 GB, 770 µs. Another 20 bytes an element are indices, keys and sorted
elements: 320 µs. PyTorch's unordered additions take less than the three passes.

`cumsum` reads and writes each element once, as a copy does. In f32, a block has three tiles of 16 KiB: one that
arrives, and two that wait for the totals before them. A multiprocessor holds four blocks. The f64 arithmetic takes
about 30 instructions and three conversions an element. A multiprocessor starts 128 of these instructions and 16
conversions a cycle: 0.24 and 0.19 cycles of the 0.60 that memory of the H100 permits.

`masked_select` reads the mask once and writes its bits. Then it reads the bits and the elements, and writes half of
them: 464 MiB, which is 162 µs on the H100. Between the two, the host waits for the number of selected elements: the
sums of tiles, a copy of 8 bytes and the start of the second kernel take the rest.

Reductions of 1 GiB read it once: `sum` at 2.96 TB/s, `max` at 2.92, `sum_dim0` of bf16 at 2.78, where `exp` reads and
writes at 3.02. A `transpose` moves what a copy moves, at 0.95 of a copy's rate. At 1 MiB, a call that is several
kernels costs the start of each.
"""

ORDERING_TEXT = """
The same for orderings. `topk` takes 64 elements of one row, `topk_rows` 64 of each row of a square matrix.
`unique` of 16 Mi elements sorts them in four passes, and reads the sorted ones once for the selection.
"""

LARGE_TEXT = "Kernels of the first table on 1 GiB, on {machine}:"

MATMUL_TEXT = "Products of two square matrices, f32 without TF32, on {machine}:"

GPU_SWEEP_TEXT = """
Every family of operations over shapes of many kinds, every dim and several dtypes, on {machine}, beside {peer}, with the time of
the calls: {shapes}. A mean is the geometric one. Of {rows} rows, whose mean is {mean}, {below} % are below 0.95 and {far} % below
0.8. `gelu` of f32 is within 2 ulp, and `scatter_add` and `index_add` add in the order of the index.
"""

CPU_SWEEP_TEXT = """
The same families on one thread of a CPU, {machine}, beside {peer}: {shapes}. Of {rows} rows, whose mean is {mean}, {below} % are
below 0.95 and {far} % below 0.7. `gelu` is within 2 ulp, `sigmoid` within one, `scatter_add` adds in the
order of the index, and `randperm` is a sort: all platforms give the same bits.
"""
CPU_TEXT = """
## CPU tensors beside PyTorch

One thread, f32, 2048 × 2048 elements; matrix products 1024 × 1024. Simulated devices run the same kernels. Rows "small"
are calls from C++ on 16 elements. `gelu` is within 2.5 ulp of the exact value everywhere. PyTorch's is up to 49 ulp off
between -2 and 0, and up to 9,900 ulp between -4 and -2.
"""

TWINS_TEXT = """
## Programs beside libtorch

Two [recipes](how-to/start-from-a-recipe.md) at a size where speed matters, on {machine}, beside programs of `benchmarks/twins`
that do the same steps with {peer}'s autograd and optimisers. Both run in turns in one run. `mlp_restart` has its steps, rows and
width behind it, `sharded_optimiser` the factor of its sizes, with one rank. Products are f32 without TF32.
"""

ALLOCATOR_TEXT = """
## Allocator

Host time of an allocation and its free on one thread; for 8 threads, elapsed time divided by all pairs. The first
column is `Allocator::allocate` and `deallocate`, the second `memory::allocate_raw` and `memory::deallocate_raw`.
"""

STARTUP_TEXT = """
## Start-up

Elapsed time from the start of the launcher to its end, on simulated devices. `true` ends at once. `world` ends after
the first collective of `Communicator::world()`.
"""

RENDEZVOUS_TEXT = """
Ranks of a job meet at its store. The first rows are processes that exchange values four times and pass a barrier, as
`Communicator::world()` does first. Rows "world" make the world on the host transport, which connects each rank with its
neighbours, and pass a barrier of the hosts. "Start alone" is the time of as many processes that only start.
"""

REPRODUCE_TEXT = """
## How to reproduce

<!-- not run: measures GPUs -->
```sh
cmake --preset cuda && cmake --build --preset cuda
benchmarks/measure.py build/cuda measured --ranks 8    # collectives, comm and the allocator, beside NCCL and PyTorch
benchmarks/measure.py record measured                  # its figures, with machine and date, to benchmarks/results
benchmarks/measure.py page                             # this page, from benchmarks/results
```

[gantry-bench](reference/gantry-bench.md) has the options. Each file of results names its commands and how times are
taken; the programs are in the build's `bin`. The files, newest first:
"""


def rows_of(results, kind):
    """Pairs of a result and one of its rows, newest first."""
    return [(result, row) for result in reversed(results) if result["kind"] == kind for row in result["rows"]]


def size_text(size):
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def number_text(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def time_text(ns):
    return f"{number_text(ns / 1000)} µs" if ns >= 1000 else f"{number_text(ns)} ns"


def ratio_text(value):
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio_cells(row):
    return ("—", "—") if row is None else (number_text(row["gantry_us"]), ratio_text(row["ratio"]))


def ratio_head(titles, peer="PyTorch"):
    return [text for title in titles for text in (f"{title}, µs", f"{peer} / gantry")]


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " ---: |" * (len(head) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def peers_text(results):
    """Which NCCL each number of GPUs was measured beside."""
    peers = {result["devices"]: result["peer"].split(",")[0] for result in results if result["kind"] == "collectives"}
    return "Beside " + ", ".join(f"{peer} on {count} GPUs" for count, peer in sorted(peers.items())) + "."


def collectives_table(results):
    """The Communicator beside NCCL."""
    rows = [(result, row) for result, row in rows_of(results, "collectives") if row["dtype"] == "f32" and row["redop"] in ("sum", None)]
    counts = sorted({result["devices"] for result, _ in rows})

    def cells(operation, size):
        for count in counts:
            found = [row for memory in ("any", "registered") for result, row in rows
                     if (result["devices"], row["operation"], row["bytes"], row["memory"]) == (count, operation, size, memory)]
            if not found:
                yield from ("—", "—")
                continue
            symmetric = f" ({ratio_text(found[0]['symmetric_ratio'])})" if "symmetric_ratio" in found[0] else ""
            yield number_text(found[0]["gantry_us"])
            yield ratio_text(found[0]["ratio"]) + symmetric

    lines = []
    for operation, sizes in COLLECTIVES.items():
        for size in sizes:
            lines.append([f"{operation}, {size_text(size)}", *cells(operation, size)])
    head = ratio_head((f"{count} GPUs" for count in counts), "NCCL")
    return table(["operation", *head], [line for line in lines if set(line[1:]) != {"—"}])


def process_table(results):
    rows = rows_of(results, "process")
    counts = sorted({result["devices"] for result, row in rows if row["name"].startswith("comm/")})
    lines = []
    for name in PROCESS:
        found = [(result["devices"], row) for result, row in rows if row["name"] == name]
        require(found, RESULTS, f"expected a row {name}")
        if name.startswith("comm/"):
            cells = []
            for count in counts:
                cells += ratio_cells(next((row for devices, row in found if devices == count), None))
        else:
            cells = [*ratio_cells(found[0][1]), *["", ""] * (len(counts) - 1)]
        lines.append([name, *cells])
    return table(["measurement", *ratio_head(f"{count} GPUs" for count in counts)], lines)


def kernel_table(results, head, keys, columns):
    """Kernels' times beside PyTorch's. A column is a title and the name of a measurement, with a place for the line's key."""
    rows, machines = {}, {}
    for result, row in rows_of(results, "process"):
        if row["name"] not in rows:  # the newest
            rows[row["name"]] = row
            machines[row["name"]] = result["machine"].split(",")[0]
    lines, keys_on = [], {}
    for key in keys:
        names = [name.format(key) for _, name in columns]
        cells = [cell for name in names for cell in ratio_cells(rows.get(name))]
        if set(cells) == {"—"}:
            continue
        lines.append([str(key), *cells])
        for machine in sorted({machines[name] for name in names if name in rows}):
            keys_on.setdefault(machine, []).append(str(key))
    yield from table([head, *ratio_head(title for title, _ in columns)], lines)
    if len(keys_on) > 1:
        *others, most = sorted(keys_on, key=lambda machine: len(keys_on[machine]))
        texts = [f"{', '.join(keys_on[machine])}: {machine}" for machine in others]
        yield ""
        yield from textwrap.wrap(f"Machines: {most}; but some or all columns of {'; '.join(texts)}.", 118)


def machine_of(results, name):
    """The machine of the newest row `name`."""
    return next((result["machine"] for result, row in rows_of(results, "process") if row["name"] == name), "no machine yet")


def family_lines(rows):
    """Lines of a table of families, from (family, row, ratio)."""
    families = {}
    for family, name, ratio in rows:
        families.setdefault(family, []).append((ratio, name))
    for family, found in families.items():
        ratios = [ratio for ratio, _ in found]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        yield [family, str(len(found)), ratio_text(mean), str(sum(ratio < 0.95 for ratio in ratios)), *least_of(found)]


def least_of(found):
    ratio, name = min(found)
    return [ratio_text(ratio), name]


FAMILY_HEAD = ["family", "rows", "mean PyTorch / gantry", "rows below 0.95", "least", "of"]


def percentage(ratios, limit):
    return f"{100 * sum(ratio < limit for ratio in ratios) / len(ratios):.1f}"


def sweep_parts(results, devices, text, far):
    """The newest run of sweep.py on a CPU or on a GPU; nothing without one. `far` is the limit of rows that are far behind."""
    runs = [result for result in results if result["kind"] == "sweep" and result["devices"] == devices]
    if not runs:
        return []
    rows, shapes = [], {}
    for row in runs[-1]["rows"]:
        family, shape, dim, dtype = row["name"].split()
        rows.append((family, f"{shape} dim {dim} {dtype}", row["ratio"]))
        shapes[shape.replace("x", " × ")] = None
    ratios = [ratio for _, _, ratio in rows]
    mean = ratio_text(math.exp(sum(map(math.log, ratios)) / len(ratios)))
    text = text.format(machine=runs[-1]["machine"], shapes=", ".join(shapes), peer=runs[-1]["peer"], rows=len(rows), mean=mean,
                       below=percentage(ratios, 0.95), far=percentage(ratios, far))
    return [wrapped(" ".join(text.split())), "\n".join(table(FAMILY_HEAD, list(family_lines(rows))))]


def cpu_parts(results):
    """The section about CPU tensors, from the newest run; nothing without one."""
    runs = [result for result in results if result["kind"] == "cpu"]
    if not runs:
        return []
    lines = [[row["name"], number_text(row["gantry_us"]), ratio_text(row["ratio"]) if "ratio" in row else "—"]
             for row in runs[-1]["rows"]]
    return [CPU_TEXT, "\n".join(table(["operation", "µs", "PyTorch / gantry"], lines))]


def twins_parts(results):
    """The section about whole programs, from the newest run on a GPU; nothing without one."""
    runs = [result for result in results if result["kind"] == "twins" and result["devices"] == 1]
    if not runs:
        return []
    lines = [[f"`{row['name']}`", f"{row['gantry_s']:.3g}", f"{row['peer_s']:.3g}", ratio_text(row["ratio"])] for row in runs[-1]["rows"]]
    heading, text = TWINS_TEXT.format(machine=runs[-1]["machine"], peer=runs[-1]["peer"]).strip().split("\n\n")
    return [heading, wrapped(" ".join(text.split())), "\n".join(table(["program", "gantry, s", "libtorch, s", "libtorch / gantry"], lines))]


def allocator_table(results):
    rows = rows_of(results, "allocator")
    names = list(dict.fromkeys(row["name"] for _, row in rows))
    lines = []
    for name in names:
        found = [row for _, row in rows if row["name"] == name]
        cells = [time_text(found[0]["gantry_ns"]), time_text(found[0]["raw_pointers_ns"])]
        for peer in ALLOCATORS:
            row = next((row for row in found if peer in row["peers"]), None)
            text = "—" if row is None else ratio_text(row["peers"][peer]["ratio"])
            if row is not None and peer == "PyTorch" and "rounds" in row:
                text += f" ({min(row['rounds'])} to {max(row['rounds'])})"
            cells.append(text)
        lines.append([name, *cells])
    return table(["pairs", "gantry", "raw pointers", *(f"{peer} / gantry" for peer in ALLOCATORS)], lines)


def sequences_text(results):
    """How many sequences each allocator completes in little more memory than is live."""
    newest = {}  # of several runs of a sequence
    for _, row in rows_of(results, "sequences"):
        newest.setdefault((row["sequence"], row["limit_factor"]), row)
    rows = [row for row in newest.values() if row["limit_factor"]]
    outcomes = {}
    for row in rows:
        for name, result in row["results"].items():
            outcomes.setdefault(name, []).append(result["outcome"])
    failed, slow = (", ".join(f"{name} in {found.count(outcome)}" for name, found in outcomes.items())
                    for outcome in ("out of memory", "too slow"))
    return (f"Sequences of allocations ran within {rows[0]['limit_factor']} × their peak live memory. Of {len(rows)} sequences, these "
            f"ended out of memory: {failed}. A pass took more than 1.5 s: {slow}.")


def launch_table(rows):
    """Start-up beside other launchers."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    lines = []
    for row in rows:
        cells = [ratio_text(row["peers"][peer]["ratio"]) if peer in row["peers"] else "—" for peer in peers]
        lines.append([f"{row['ranks']} × {'true' if row['name'] == 'true' else 'world'}", f"{row['gantry_s']:.3g}", *cells])
    return table(["processes", "glaunch, s", *(f"{peer} / glaunch" for peer in peers)], lines)


def rendezvous_table(rows):
    """Cost of the meeting against the number of ranks."""
    lines = []
    for row in rows:
        kind = ", world" if row["name"] == "world" else ""
        lines.append([f"{row['ranks']} on {row['hosts']} hosts{kind}", f"{row['seconds']:.3g}", f"{row['start_seconds']:.3g}",
                      f"{row['requests'] / row['ranks']:.3g}", number_text(row["rank_mib"]), number_text(row["server_mib"])])
    return table(["ranks", "s", "start alone, s", "requests a rank", "MiB a rank", "MiB of the store"], lines)


def startup_parts(results):
    """The section about start-up, from the newest run; nothing without one."""
    runs = [result for result in results if result["kind"] == "startup"]
    if not runs:
        return []
    rows = runs[-1]["rows"]
    return [STARTUP_TEXT, "\n".join(launch_table([row for row in rows if "peers" in row])), RENDEZVOUS_TEXT,
            "\n".join(rendezvous_table([row for row in rows if "peers" not in row])),
            *(wrapped(f"{note}.") for note in runs[-1].get("notes", []))]


def wrapped(text, width=118):
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def notes_text(results, kind):
    """The reservations that hold for results of `kind`, with the device counts that they hold for."""
    counts = {}
    for result in results:
        for note in result.get("notes", []) if result["kind"] == kind else []:
            counts.setdefault(note, set()).add(result["devices"])
    return wrapped(" ".join(f"On {', '.join(map(str, sorted(found)))} GPUs: {note}." for note, found in counts.items()))


def sources(results):
    """The files behind the tables, newest first."""
    for result in reversed(results):
        commit = f", commit {result['commit']}" if result["commit"] else ""
        about = f"{result['machine']}{commit}; beside {result['peer']}."
        link = f"- [{result['name']}](../benchmarks/results/{result['name']}):"
        yield textwrap.indent(wrapped(f"{link} {about}", 116), "  ")[2:]


def page(results):
    """The text of the page."""
    parts = [HEAD, COLLECTIVES_TEXT, "\n".join(collectives_table(results)),
             wrapped(peers_text(results)), notes_text(results, "collectives"), PICTURE, PROCESS_TEXT,
             "\n".join(process_table(results)), KERNEL_TEXT, "\n".join(kernel_table(results, "kernel", KERNELS, KERNEL_COLUMNS)),
             ORDERING_TEXT, "\n".join(kernel_table(results, "kernel", ORDERINGS, ORDERING_COLUMNS)),
             wrapped(LARGE_TEXT.format(machine=machine_of(results, f"kernel/add/{1024 * MIB}"))),
             "\n".join(kernel_table(results, "kernel", KERNELS, LARGE_COLUMNS)),
             wrapped(MATMUL_TEXT.format(machine=machine_of(results, "matmul/8192"))),
             "\n".join(kernel_table(results, "size", MATRICES, MATMUL_COLUMNS)),
             *sweep_parts(results, 1, GPU_SWEEP_TEXT, 0.8), *cpu_parts(results), *sweep_parts(results, 0, CPU_SWEEP_TEXT, 0.7),
             *twins_parts(results), ALLOCATOR_TEXT, "\n".join(allocator_table(results)),
             wrapped(sequences_text(results)), *startup_parts(results), REPRODUCE_TEXT, "\n".join(sources(results))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main(arguments):
    """Writes the page; with --check compares it. Returns the exit code."""
    text = page(read_results())
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE}: expected what benchmarks/measure.py page writes; run it, and commit the page")
        return 1
    if arguments:
        print("usage: measure.py page [--check]")
        return 2
    PAGE.write_text(text, encoding="utf-8")
    return 0
