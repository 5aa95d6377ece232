#!/usr/bin/env python3
"""Writes a test that runs the examples of the public headers' docstrings.

Usage: docstring_examples.py ROOT OUTPUT

Each example is the body of a function behind `using namespace gantry;`. The example of a member goes on from the
example of its class. Errors of the compiler name the lines of the headers.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "checks"))
from header_docstrings import CLASSES, docstrings, public_headers  # noqa: E402

PROLOGUE = """#include "tests/docs/docstring_example.hpp"

using namespace gantry;

"""


def body_of(path, number, code):
    return f'#line {number} "{path}"\n' + "\n".join(code) + "\n"


def class_at(classes, line):
    """The class whose docstring is the last one above `line`."""
    above = [docstring for docstring in classes if docstring.line < line]
    return above[-1] if above else None


def functions_of(path, text):
    """(name, text) of each example of a header."""
    outer = docstrings(text)
    classes = [docstring for docstring in outer if docstring.kind in CLASSES]
    functions = []
    for docstring in outer + docstrings(text, "  "):
        for number, code in docstring.examples():
            before = ""
            if docstring not in outer and (around := class_at(classes, docstring.line)):
                before = "".join(body_of(path, *example) for example in around.examples())
            functions.append((number, f"{before}{body_of(path, number, code)}"))
    stem = re.sub(r"\W", "_", str(path.relative_to("include/gantry")).removesuffix(".hpp"))
    return [(f"{stem}_{number}", body) for number, body in functions]


def main():
    root, output = map(pathlib.Path, sys.argv[1:])
    text = PROLOGUE
    for path in public_headers(root):
        for name, body in functions_of(path, (root / path).read_text(encoding="utf-8")):
            text += f"GANTRY_DOCSTRING_EXAMPLE({name}) {{\n{body}}}\n"
    if not output.exists() or output.read_text(encoding="utf-8") != text:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
