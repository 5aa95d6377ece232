"""Fails on an include that leaves the allowed edges between the layers, and on circles of files or folders within a layer.

    core → machine → device → streams → memory → ipc → kernels → tensor → collectives
    core → job → collectives, launcher
    memory → snapshots → tools
    core → command_line → launcher, tools
    machine → launcher
    public headers of all layers → compat

Includes between the project's own files are written from the repository root, never relative.

The folders of a layer depend on each other in one direction. Its public headers are one more folder, include/gantry/<layer>.
"""

import pathlib
import re

from source_tree import LAYERS, code_files, read_lines, run_check

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STACK = ["core", "machine", "device", "streams", "memory", "ipc", "kernels", "tensor", "collectives"]
USES = {layer: set(STACK[:at]) for at, layer in enumerate(STACK)} | {"job": {"core"}, "command_line": {"core"}}
USES["snapshots"] = USES["ipc"]
USES["launcher"] = {"command_line", "core", "job", "machine"}
USES["collectives"].add("job")
USES["compat"] = {*STACK, "job"}
# The layer that implements a header in include/gantry/extend/.
EXTEND = {"driver.hpp": "device", "forwarding_driver.hpp": "device", "parse_number.hpp": "core", "store.hpp": "job",
          "unique_fd.hpp": "core"}
# Headers that forward to another layer for one release.
MOVED = {"memory/ipc.hpp": "ipc"}


def layer_of_path(name):
    """The layer that a path below the root, or below include/gantry/, belongs to."""
    if name in MOVED:
        return MOVED[name]
    parts = name.split("/")
    return EXTEND.get(parts[1], "extend") if parts[0] == "extend" and len(parts) > 1 else parts[0]


def path_in_include(path):
    """The path of a public header as an include names it, without "gantry/"; the path of another file as it is."""
    return path.as_posix().removeprefix("include/gantry/")


def included_project_path(quote, name):
    """The path below a layer that an include names ("memory/heap.hpp"), or None for a foreign header."""
    name = name.removeprefix("gantry/")
    if quote == '"' or layer_of_path(name) in USES and "/" in name:
        return name
    return None


def complaint(layer, quote, name):
    """What is wrong with one include of a file in a layer, or None."""
    if name in ("gantry/gantry.hpp", "gantry.hpp"):
        return "the umbrella header is for users"
    target = included_project_path(quote, name)
    if target is None:
        return None
    target_layer = layer_of_path(target)
    if target_layer not in USES or "/" not in target:
        return "an include of the project is written from the repository root"
    if layer == "compat" != target_layer and quote == '"':
        return "compat knows public headers alone"
    if target_layer == layer or target_layer in USES[layer]:
        return None
    return f"{layer} must not know {target_layer}"


def circles(includes):
    """One path through each circle of the graph {file: included files}, with its first file at both ends."""
    found = []
    finished = set()

    def visit(file, trail):
        if file in trail:
            found.append([*trail[trail.index(file):], file])
            return
        if file in finished:
            return
        for included in sorted(includes.get(file, ())):
            visit(included, [*trail, file])
        finished.add(file)

    for file in sorted(includes):
        visit(file, [])
    return found


def folder_of(file):
    """The folder of a file that is given with its quote; public headers of a layer have one folder."""
    folder = pathlib.PurePosixPath(file[1:]).parent
    return f"include/gantry/{folder.parts[0]}" if file[0] == "<" else folder.as_posix()


def folder_circles(includes):
    """One text for each circle of folders of a layer: the folders, then an include for each arrow."""
    arrows = {}
    for file, targets in sorted(includes.items()):
        for target in sorted(targets):
            here, there = folder_of(file), folder_of(target)
            if here != there and layer_of_path(file[1:]) == layer_of_path(target[1:]):
                arrows.setdefault(here, {}).setdefault(there, f"{file[1:]} includes {target[1:]}")
    return [f"{' → '.join(circle)}: {', '.join(arrows[here][there] for here, there in zip(circle, circle[1:]))}"
            for circle in circles(arrows)]


def violations(root):
    found = []
    includes = {}
    for path in code_files(root, ["include/gantry", *LAYERS, "compat", "command_line", "launcher"]):
        # The umbrella header, and names that are easy to guess for headers of layers.
        if path.parts[0] == "include" and len(path.parts) == 3:
            continue
        # A public header and a source file of one layer may have the same path below it: the quote tells them apart.
        quote_of_path = "<" if path.parts[0] == "include" else '"'
        layer = layer_of_path(path_in_include(path))
        if layer not in USES:
            found.append(f"{path}: no layer implements this header")
            continue
        for number, line in enumerate(read_lines(root / path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            if problem := complaint(layer, *match.groups()):
                found.append(f"{path}:{number}: {line.strip()}: {problem}")
            elif target := included_project_path(*match.groups()):
                includes.setdefault(quote_of_path + path_in_include(path), set()).add(match[1] + target)
    found += [f"circle of includes: {' → '.join(circle)}" for circle in circles(includes)]
    found += [f"circle of folders: {circle}" for circle in folder_circles(includes)]
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
