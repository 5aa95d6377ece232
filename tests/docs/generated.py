"""The project that compiles a page's C++ blocks: a program each for those with a main function, one for all fragments."""

import re

PROLOGUE = """#include <gantry/gantry.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>
"""

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(page LANGUAGES CXX)
find_package(gantry REQUIRED)
"""


def split_includes(code):
    """The include lines of a fragment, and the rest with as many lines as before."""
    includes, rest = [], []
    for line in code.splitlines():
        is_include = re.match(r"\s*#\s*include\b", line) is not None
        includes += [line] if is_include else []
        rest.append("" if is_include else line)
    return includes, "\n".join(rest)


def fragments_source(blocks):
    """A program that runs the fragment whose name is its argument."""
    includes, functions, calls = [], [], []
    for block in blocks:
        block_includes, body = split_includes(block.code)
        includes += block_includes
        functions.append(f'void {block.name}() {{\n#line {block.line} "{block.page}"\n{body}\n}}\n')
        calls.append(f'  if (name == "{block.name}") return {block.name}(), 0;\n')
    return (PROLOGUE + "\n".join(includes) + "\nusing namespace gantry;\n\n" + "\n".join(functions)
            + "\nint main(int, char** arguments) {\n  const std::string_view name = arguments[1];\n" + "".join(calls)
            + "  return 2;\n}\n")


def write_project(folder, blocks):
    """Writes the sources and the CMakeLists.txt of a page's C++ blocks into `folder`."""
    folder.mkdir(parents=True)
    targets = {}
    fragments = [block for block in blocks if not block.is_program]
    if fragments:
        targets["fragments"] = fragments_source(fragments)
    for block in blocks:
        if block.is_program:
            targets[block.name] = f'#line {block.line} "{block.page}"\n{block.code}'
    text = PROJECT
    for target, source in targets.items():
        (folder / f"{target}.cpp").write_text(source, encoding="utf-8")
        text += f"add_executable({target} {target}.cpp)\ntarget_link_libraries({target} PRIVATE gantry::gantry)\n"
    (folder / "CMakeLists.txt").write_text(text, encoding="utf-8")
