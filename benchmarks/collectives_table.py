#!/usr/bin/env python3
"""Joins results of gantry-bench and peer_nccl into Markdown tables, one per operation.

Usage: collectives_table.py gantry.json nccl.json [more.json …] [--value p50_us|time_us|busbw_gbs] [--op OPERATION …]

Every library's variants (the algorithm asked for, the kind of memory) and modes (eager, graph) are columns. The last
column compares the first file's first variant with the fastest peer of the same mode: above 1, the first is better.
Results with wrong elements and rows that failed have these words where the time would be, and a line below the table.
Files of different machines, rank counts or element types are refused.
"""
import argparse
import json
import sys

SCHEMA = "gantry-collectives-1"
VALUES = {"p50_us": "median µs", "time_us": "mean µs", "busbw_gbs": "bus bandwidth, GB/s"}


def size_text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024 != 0:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def number_text(value):
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def read_report(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        sys.exit(f"{path}: expected results of gantry-bench (schema {SCHEMA})")
    return report


def require_same(reports, paths):
    def machine(report):
        return report["device"], report["ranks"]

    for report, path in zip(reports, paths):
        if machine(report) != machine(reports[0]):
            sys.exit(f"{path}: expected {machine(reports[0])} as in {paths[0]}, but got {machine(report)}")


class Table:
    """The rows of one operation, of all reports: values by size, mode and column."""

    def __init__(self, operation, value):
        self.operation = operation
        self.value = value
        self.columns = []  # (report's index, library, variant), in the order of appearance
        self.cells = {}  # (bytes, mode) -> {column: value}
        self.kinds = set()  # (dtype, redop)
        self.bad = {}  # (bytes, mode) -> {column: word}
        self.remarks = []

    def add_column(self, column):
        if column not in self.columns:
            self.columns.append(column)

    def add(self, index, library, row):
        column = (index, library, row["variant"])
        self.add_column(column)
        self.kinds.add((row["dtype"], row["redop"]))
        self.cells.setdefault((row["bytes"], row["mode"]), {})[column] = row[self.value]

    def add_bad(self, column, row, word, remark):
        """A row that has no time, which `word` says in its cell and `remark` below the table."""
        self.bad.setdefault((row["bytes"], row["mode"]), {})[column] = word
        self.cells.setdefault((row["bytes"], row["mode"]), {})
        _, library, variant = column
        self.remarks.append(f"- {library} {variant}, {size_text(row['bytes'])}, {row['mode']}: {remark}")

    def text_of(self, key, column):
        if column in self.cells[key]:
            return number_text(self.cells[key][column])
        return self.bad.get(key, {}).get(column, "—")

    def ratio(self, cells):
        """The first column against the best of other reports; None where one of them is missing."""
        ours = cells.get(self.columns[0])
        theirs = [cell for column, cell in cells.items() if column[0] != self.columns[0][0]]
        if not ours or not theirs:
            return None
        return ours / max(theirs) if self.value == "busbw_gbs" else min(theirs) / ours

    def lines(self):
        if len(self.kinds) > 1:
            sys.exit(f"{self.operation}: expected one element type and op in all files, but got {sorted(self.kinds)}")
        dtype, redop = next(iter(self.kinds), ("-", "-"))
        names = [f"{library} {variant}" for _, library, variant in self.columns]
        peers = {index for index, _, _ in self.columns} - {self.columns[0][0]}
        head = ["bytes", "mode", *names] + ([f"best peer / {names[0]}"] if peers else [])
        if peers and self.value == "busbw_gbs":
            head[-1] = f"{names[0]} / best peer"
        what = dtype if redop == "-" else f"{dtype} {redop}"
        yield f"### {self.operation} ({what}), {VALUES[self.value]}" if self.kinds else f"### {self.operation}"
        yield ""
        yield "| " + " | ".join(head) + " |"
        yield "| --- | --- |" + " ---: |" * (len(head) - 2)
        for (size, mode), cells in sorted(self.cells.items(), key=lambda item: (item[0][1], item[0][0])):
            texts = [self.text_of((size, mode), column) for column in self.columns]
            if peers:
                ratio = self.ratio(cells)
                texts.append("—" if ratio is None else f"{ratio:.2f}")
            yield "| " + " | ".join([size_text(size), mode, *texts]) + " |"
        yield ""
        if self.remarks:
            yield from self.remarks
            yield ""


def tables_of(reports, value, operations):
    tables = {}

    def table_of(row):
        return tables.setdefault(row["operation"], Table(row["operation"], value))

    def is_wanted(row):
        return not operations or row["operation"] in operations

    for index, report in enumerate(reports):
        library = report["library"]
        for row in filter(is_wanted, report["rows"]):
            if row["wrong"]:
                table = table_of(row)
                table.add_column((index, library, row["variant"]))
                table.kinds.add((row["dtype"], row["redop"]))
                table.add_bad((index, library, row["variant"]), row, "wrong", f"{row['wrong']:,} elements are wrong")
            elif row["batches"] > 0:
                table_of(row).add(index, library, row)
        for row in filter(is_wanted, report.get("failures", [])):
            column = (index, library, row["variant"])
            table_of(row).add_column(column)
            table_of(row).add_bad(column, row, "failed", row["cause"])
    return list(tables.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--value", choices=VALUES, default="p50_us")
    parser.add_argument("--op", nargs="+", default=[])
    options = parser.parse_args()
    reports = [read_report(path) for path in options.files]
    require_same(reports, options.files)
    print(f"{reports[0]['ranks']} × {reports[0]['device']}; ranks started by {reports[0]['launched_by']}\n")
    for table in tables_of(reports, options.value, options.op):
        for line in table.lines():
            print(line)


if __name__ == "__main__":
    main()
