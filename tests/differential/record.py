#!/usr/bin/env python3
"""Writes random statements about tensors and PyTorch's answers, for differential_test.cpp. Needs PyTorch and NumPy.

Usage: record.py COUNT [SEED] > data/statements.dat

A line is `HASH OPERATION PARAMETERS INPUT...`. HASH is FNV-1a of the dtype, the shape and the elements of all results.
PARAMETERS is a list with commas, or `-`. An index list has slashes between its entries. INPUT is `dtype:shape:layout:seed`,
whose elements both sides compute from the seed. Statements are exact on every machine: integers, copies, comparisons, and
`+ - * /` of floating numbers. Statements that PyTorch refuses are left out.
"""
import random
import struct
import sys

import numpy
import torch

MASK = (1 << 64) - 1
DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
          "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("u8", "i8", "i16", "i32", "i64")
# The sign of a zero among zeros is open.
OPEN_ZEROS = {"amax", "amin", "max", "min", "aminmax", "minimum", "maximum", "kthvalue", "topk", "median", "cummax", "cummin"}
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)


def mixed(x):
    """SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def element(dtype, seed, k):
    x = mixed(seed * 1000003 + k)
    if dtype == "bool":
        return bool(x & 1)
    if dtype in FLOATS:
        # Seeds that 3 divides have special values.
        return SPECIAL[x >> 32 & 3] if seed % 3 == 0 and x % 7 == 0 else (x % 33 - 16.0) / 4
    return x % 11 if dtype == "u8" else x % 11 - 5


def make(text):
    """The tensor of an INPUT."""
    dtype, shape, layout, seed = text.split(":")
    sizes = [int(size) for size in shape.split("x")] if shape else []
    stored = {"c": sizes, "t": sizes[::-1], "s": [*sizes[:-1], 2 * sizes[-1]] if sizes else []}[layout]
    count = 1
    for size in stored:
        count *= size
    flat = torch.tensor([element(dtype, int(seed), k) for k in range(count)], dtype=DTYPES[dtype]).reshape(stored)
    if layout == "t":
        return flat.permute(*range(len(sizes) - 1, -1, -1)) if sizes else flat
    return flat[..., ::2] if layout == "s" and sizes else flat


def hashed(results):
    value = 0xCBF29CE484222325
    for result in results:
        plain = result.detach().contiguous()
        if plain.dtype in (torch.float16, torch.bfloat16):
            plain = plain.to(torch.float32)  # exact; NumPy has no bf16
        array = plain.numpy().copy()
        if array.dtype.kind == "f":
            array[numpy.isnan(array)] = numpy.nan
        head = NAMES[result.dtype].encode() + struct.pack(f"<{result.dim() + 1}q", result.dim(), *result.shape)
        for byte in head + array.tobytes():
            value = ((value ^ byte) * 0x100000001B3) & MASK
    return f"{value:016x}"


def index_list(text, tensors):
    entries = []
    for entry in text.split("/"):
        if entry == "N":
            entries.append(None)
        elif entry == "E":
            entries.append(Ellipsis)
        elif entry[0] == "T":
            entries.append(tensors[int(entry[1:])])
        elif ":" in entry:
            entries.append(slice(*(int(bound) if bound else None for bound in entry.split(":"))))
        else:
            entries.append(int(entry))
    return tuple(entries)


def run(operation, p, t):
    """The results of a statement: `p` are its parameters as text, `t` its tensors."""
    n = [int(x) for x in p.split(",")] if p not in ("", "-") and operation not in ("index", "index_put", "to", "view_dtype") else []
    a = t[0]
    f = {
        "neg": lambda: -a, "abs": lambda: a.abs(), "sign": lambda: a.sign(), "square": lambda: a.square(), "floor": lambda: a.floor(),
        "ceil": lambda: a.ceil(), "round": lambda: a.round(), "trunc": lambda: a.trunc(), "relu": lambda: a.relu(),
        "logical_not": lambda: a.logical_not(), "bitwise_not": lambda: a.bitwise_not(), "isnan": lambda: a.isnan(),
        "isinf": lambda: a.isinf(), "isfinite": lambda: a.isfinite(), "signbit": lambda: a.signbit(),
        "add": lambda: a + t[1], "sub": lambda: a - t[1], "mul": lambda: a * t[1], "div": lambda: a / t[1],
        "eq": lambda: a == t[1], "ne": lambda: a != t[1], "lt": lambda: a < t[1], "le": lambda: a <= t[1], "gt": lambda: a > t[1],
        "ge": lambda: a >= t[1], "minimum": lambda: torch.minimum(a, t[1]), "maximum": lambda: torch.maximum(a, t[1]),
        "bitwise_and": lambda: a & t[1], "bitwise_or": lambda: a | t[1], "bitwise_xor": lambda: a ^ t[1],
        "logical_and": lambda: a.logical_and(t[1]), "logical_or": lambda: a.logical_or(t[1]), "logical_xor": lambda: a.logical_xor(t[1]),
        "add_number": lambda: a + n[0], "mul_number": lambda: a * n[0], "rsub_number": lambda: n[0] - a, "gt_number": lambda: a > n[0],
        "clamp": lambda: a.clamp(n[0], n[1]), "where": lambda: torch.where(t[0], t[1], t[2]),
        "sum": lambda: a.sum() if not n else a.sum(n[0], keepdim=bool(n[1])), "prod": lambda: a.prod() if not n else a.prod(n[0], keepdim=bool(n[1])),
        "amax": lambda: a.amax(n[0], keepdim=bool(n[1])), "amin": lambda: a.amin(n[0], keepdim=bool(n[1])),
        "argmax": lambda: a.argmax(n[0], keepdim=bool(n[1])), "argmin": lambda: a.argmin(n[0], keepdim=bool(n[1])),
        "max": lambda: a.max(n[0], keepdim=bool(n[1])), "min": lambda: a.min(n[0], keepdim=bool(n[1])),
        "any": lambda: a.bool().any(n[0], keepdim=bool(n[1])), "all": lambda: a.bool().all(n[0], keepdim=bool(n[1])),
        "count_nonzero": lambda: a.count_nonzero(n[0]), "aminmax": lambda: torch.aminmax(a, dim=n[0], keepdim=bool(n[1])),
        "cumsum": lambda: a.cumsum(n[0]), "cumprod": lambda: a.cumprod(n[0]), "cummax": lambda: a.cummax(n[0]), "cummin": lambda: a.cummin(n[0]),
        "sort": lambda: torch.sort(a, dim=n[0], descending=bool(n[1]), stable=True),
        "argsort": lambda: torch.argsort(a, dim=n[0], descending=bool(n[1]), stable=True),
        "topk": lambda: a.topk(n[0], n[1], bool(n[2])).values, "kthvalue": lambda: a.kthvalue(n[0], n[1]).values,
        "median": lambda: a.median(n[0]).values, "unique": lambda: torch.unique(a, return_inverse=True, return_counts=True),
        "unique_consecutive": lambda: torch.unique_consecutive(a, return_inverse=True, return_counts=True),
        "searchsorted": lambda: torch.searchsorted(a.sort().values, t[1], right=bool(n[0])), "bincount": lambda: a.abs().flatten().bincount(minlength=n[0]),
        "diff": lambda: a.diff(n[0], n[1]), "isin": lambda: torch.isin(a, t[1]),
        "transpose": lambda: a.transpose(n[0], n[1]), "permute": lambda: a.permute(*n), "flatten": lambda: a.flatten(n[0], n[1]),
        "unsqueeze": lambda: a.unsqueeze(n[0]), "squeeze": lambda: a.squeeze(n[0]), "flip": lambda: a.flip(n), "roll": lambda: a.roll(n[0], n[1]),
        "repeat": lambda: a.repeat(*n), "narrow": lambda: a.narrow(*n), "select": lambda: a.select(*n), "unfold": lambda: a.unfold(*n),
        "diagonal": lambda: a.diagonal(*n), "tril": lambda: a.tril(n[0]), "triu": lambda: a.triu(n[0]), "cat": lambda: torch.cat(t, n[0]),
        "stack": lambda: torch.stack(t, n[0]), "repeat_interleave": lambda: a.repeat_interleave(n[0], n[1]), "movedim": lambda: a.movedim(n[0], n[1]),
        "rot90": lambda: a.rot90(n[0], (0, 1)), "to": lambda: a.to(DTYPES[p]), "view_dtype": lambda: a.contiguous().view(DTYPES[p]),
        "index": lambda: a[index_list(p, t)], "index_put": lambda: put(a, index_list(p, t), t[-1]),
        "take": lambda: a.take(t[1] % max(a.numel(), 1)), "gather": lambda: a.gather(n[0], t[1].abs() % a.size(n[0])),
        "index_select": lambda: a.index_select(n[0], t[1].abs() % a.size(n[0])), "take_along_dim": lambda: a.take_along_dim(t[1].abs() % a.size(n[0]), n[0]),
        "scatter_add": lambda: a.scatter_add(n[0], t[1].abs() % a.size(n[0]), t[2]), "index_add": lambda: a.index_add(n[0], t[1].abs() % a.size(n[0]), t[2]),
        "index_fill": lambda: a.index_fill(n[0], t[1].abs() % a.size(n[0]), n[1]), "masked_select": lambda: a.masked_select(t[1]),
        "masked_fill": lambda: a.masked_fill(t[1], n[0]), "masked_scatter": lambda: a.masked_scatter(t[1], t[2]), "nonzero": lambda: a.nonzero(),
    }[operation]
    result = f()
    return [result] if isinstance(result, torch.Tensor) else list(result)


def put(a, indices, value):
    result = a.clone()
    result[indices] = value
    return result


class Maker:
    """Random statements."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    def shape(self, low=0, high=4, largest=5):
        return [self.random.choice((0, 1, 2, 2, 3, 3, 4, largest)) for _ in range(self.random.randint(low, high))]

    def tensor(self, dtypes, sizes):
        return f"{self.pick(*dtypes)}:{'x'.join(map(str, sizes))}:{self.pick('c', 'c', 't', 's')}:{self.random.randrange(1000)}"

    def dim(self, sizes):
        return self.random.randrange(-len(sizes), len(sizes))

    def statement(self):
        """(operation, parameters, inputs)."""
        every = ("bool", *INTEGERS, *FLOATS)
        numbers = (*INTEGERS, *FLOATS)
        kind = self.random.randrange(9)
        sizes = self.shape(1)
        if kind == 0:
            op = self.pick("neg", "abs", "sign", "square", "relu", "logical_not", "isnan", "isinf", "isfinite", "bitwise_not", "floor", "ceil", "round", "trunc", "signbit")
            dtypes = {"bitwise_not": ("bool", *INTEGERS), "logical_not": every, "isnan": every, "isinf": every, "isfinite": every}.get(
                op, FLOATS if op in ("floor", "ceil", "round", "trunc", "signbit") else INTEGERS if op == "sign" else numbers)
            return op, "-", [self.tensor(dtypes, self.shape())]
        if kind == 1:
            op = self.pick("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor",
                           "logical_and", "logical_or", "logical_xor")
            dtypes = ("bool", *INTEGERS) if op.startswith("bitwise") else FLOATS if op == "div" else numbers if op in ("add", "sub", "mul") else every
            other = [self.pick(size, size, size, 1) for size in sizes][self.random.randrange(len(sizes)):] if self.random.random() < 0.5 else sizes
            return op, "-", self.random.sample([self.tensor(dtypes, sizes), self.tensor(dtypes, other)], 2)
        if kind == 2:
            op = self.pick("add_number", "mul_number", "rsub_number", "gt_number", "clamp", "where", "to", "view_dtype", "masked_fill")
            if op == "where":
                dtype = self.pick(*every)
                return op, "-", [self.tensor(("bool",), sizes), self.tensor((dtype,), sizes), self.tensor((dtype,), sizes)]
            if op == "masked_fill":
                return op, str(self.random.randrange(5)), [self.tensor(numbers, sizes), self.tensor(("bool",), sizes)]
            if op == "to":
                source = self.pick("bool", *INTEGERS)
                return op, self.pick(*every), [self.tensor((source,), sizes)]
            if op == "view_dtype":
                return op, self.pick("u8", "i16", "i32"), [self.tensor(("i16", "i32", "f32", "f64"), [*sizes, 4])]
            if op == "clamp":
                return op, f"{self.random.randrange(3)},{self.random.randrange(3, 6)}", [self.tensor(numbers, sizes)]
            return op, str(self.random.randrange(5)), [self.tensor(numbers, sizes)]
        if kind == 3:
            op = self.pick("sum", "prod", "amax", "amin", "argmax", "argmin", "max", "min", "any", "all", "count_nonzero", "aminmax", "cumsum", "cumprod", "cummax", "cummin")
            exact = op in ("sum", "prod", "cumsum", "cumprod")
            dtypes = ("bool", *INTEGERS) if exact else numbers if op != "any" and op != "all" else every
            dim = self.dim(sizes)
            return op, f"{dim},{self.random.randrange(2)}" if not (op in ("sum", "prod") and self.random.random() < 0.2) else "-", [self.tensor(dtypes, sizes)]
        if kind == 4:
            op = self.pick("sort", "sort", "argsort", "topk", "kthvalue", "median", "unique", "unique_consecutive", "searchsorted", "bincount", "diff", "isin")
            dim = self.dim(sizes)
            length = sizes[dim]
            if op in ("sort", "argsort"):
                return op, f"{dim},{self.random.randrange(2)}", [self.tensor(every, sizes)]
            if op == "topk":
                return op, f"{self.random.randint(0, length)},{dim},{self.random.randrange(2)}", [self.tensor(numbers, sizes)]
            if op == "kthvalue":
                return op, f"{self.random.randint(1, max(length, 1))},{dim}", [self.tensor(numbers, sizes)]
            if op == "median":
                return op, str(dim), [self.tensor(numbers, sizes)]
            if op == "searchsorted":
                dtype = self.pick(*INTEGERS)
                return op, str(self.random.randrange(2)), [self.tensor((dtype,), [self.random.randrange(9)]), self.tensor((dtype,), sizes)]
            if op == "bincount":
                return op, str(self.random.randrange(9)), [self.tensor(INTEGERS, sizes)]
            if op == "diff":
                return op, f"{self.random.randrange(3)},{dim}", [self.tensor(numbers, sizes)]
            if op == "isin":
                return op, "-", [self.tensor(("i32",), sizes), self.tensor(("i32",), self.shape(1))]
            return op, "-", [self.tensor(INTEGERS, sizes)]
        if kind == 5:
            sizes = self.shape(2)
            d, e = self.dim(sizes), self.dim(sizes)
            op = self.pick("transpose", "permute", "flatten", "unsqueeze", "squeeze", "flip", "roll", "repeat", "narrow", "select", "unfold", "diagonal",
                           "tril", "triu", "cat", "stack", "repeat_interleave", "movedim", "rot90")
            r = self.random
            p = {"transpose": [d, e], "permute": r.sample(range(len(sizes)), len(sizes)), "flatten": sorted((d % len(sizes), e % len(sizes))),
                 "unsqueeze": [d], "squeeze": [d], "flip": [d], "roll": [r.randrange(-4, 5), d], "repeat": [r.randrange(1, 3) for _ in sizes],
                 "narrow": [d, r.randrange(2), r.randrange(3)], "select": [d, r.randrange(-2, 2)], "unfold": [d, r.randrange(1, 3), r.randrange(1, 3)],
                 "diagonal": [r.randrange(-2, 3), 0, 1], "tril": [r.randrange(-2, 3)], "triu": [r.randrange(-2, 3)], "cat": [d], "stack": [d],
                 "repeat_interleave": [r.randrange(4), d], "movedim": [d, e], "rot90": [r.randrange(-3, 5)]}[op]
            dtype = self.pick(*every)
            return op, ",".join(map(str, p)), [self.tensor((dtype,), sizes) for _ in range(r.randint(1, 3) if op in ("cat", "stack") else 1)]
        if kind in (6, 7):
            return self.indexing()
        op = self.pick("take", "gather", "index_select", "take_along_dim", "scatter_add", "index_add", "index_fill", "masked_select", "masked_scatter", "nonzero")
        sizes = [max(size, 1) for size in sizes]
        d = self.dim(sizes)
        dtype = self.pick(*INTEGERS)
        shorter = [self.random.randint(1, size) for size in sizes]
        one = [self.random.randrange(5)]
        along = [one[0] if i == d % len(sizes) else size for i, size in enumerate(sizes)]
        inputs = {"take": [("i64", sizes)], "gather": [("i64", shorter)], "index_select": [("i64", one)], "take_along_dim": [("i64", along)],
                  "scatter_add": [("i64", shorter), (dtype, sizes)], "index_add": [("i64", one), (dtype, along)], "index_fill": [("i64", one)],
                  "masked_select": [("bool", sizes)], "masked_scatter": [("bool", sizes), (dtype, sizes)], "nonzero": []}[op]
        return op, f"{d},3", [self.tensor((dtype,), sizes), *(self.tensor((kind,), shape) for kind, shape in inputs)]

    def indexing(self):
        sizes = [max(size, 1) for size in self.shape(1)]
        entries, tensors, d = [], [], 0
        common = [self.random.randrange(4)] if self.random.random() < 0.5 else [2, self.random.randrange(3)]
        ellipsis = False
        while d < len(sizes) and self.random.random() < 0.9:
            choice = self.random.randrange(8)
            size = sizes[d]
            if choice == 0:
                entries.append(str(self.random.randrange(-size, size)))
            elif choice in (1, 2):
                bounds = [self.pick("", str(self.random.randrange(-size, size + 1))) for _ in range(2)]
                entries.append(f"{bounds[0]}:{bounds[1]}:{self.pick('', '1', '2')}")
            elif choice == 3:
                entries.append("N")
                continue
            elif choice == 4 and not ellipsis:
                ellipsis = True
                entries.append("E")
                d = self.random.randint(d, len(sizes))
                continue
            elif choice == 5:
                tensors.append(f"bool:{size}:c:{self.random.randrange(1000)}")
                entries.append(f"T{len(tensors)}")
            else:
                shape = "x".join(map(str, self.pick(common, common[-1:])))
                tensors.append(f"index{size}:{shape}:c:{self.random.randrange(1000)}")
                entries.append(f"T{len(tensors)}")
            d += 1
        if not entries:
            entries = ["E"]
        while entries.count("N") + len(sizes) > 8:  # gantry's limit
            entries.remove("N")
        a = self.tensor(("bool", *INTEGERS, *FLOATS), sizes)
        op = self.pick("index", "index", "index_put")
        if op == "index_put":
            tensors.append(f"{a.split(':')[0]}::c:{self.random.randrange(1000)}")
        return op, "/".join(entries), [a, *tensors]


def resolved(text):
    """An INPUT as a tensor; `indexN` has positions of a dim of size N."""
    if text.startswith("index"):
        size, rest = text[5:].split(":", 1)
        values = make(f"i64:{rest}")
        return values.remainder(int(size)) - (int(size) if int(rest.rsplit(":", 1)[1]) % 2 else 0)
    return make(text)


def main():
    maker = Maker(int(sys.argv[2]) if len(sys.argv) > 2 else 20261126)
    count = int(sys.argv[1])
    seen = set()
    while len(seen) < count:
        operation, parameters, inputs = maker.statement()
        line = " ".join([operation, parameters, *inputs])
        if line in seen:
            continue
        tensors = [resolved(text) for text in inputs]
        if operation in OPEN_ZEROS and any(((t == 0) & t.signbit()).any() for t in tensors):
            continue
        try:
            answer = hashed(run(operation, parameters, tensors))
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue
        seen.add(line)
        print(answer, line)


if __name__ == "__main__":
    main()
