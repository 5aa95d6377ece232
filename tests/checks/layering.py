"""Fails on an include that goes from a layer to one on its right.

Layers, from left to right: core, device, streams, memory, kernels, tensor, collectives. The launcher uses core and the
parts of device that never initialise CUDA. Includes between the project's own files are written from the repository root, never relative.
"""

import re

from source_tree import LAYERS, code_files, read_lines, run_check

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ALL_LAYERS = [*LAYERS, "launcher"]
FOR_THE_LAUNCHER = re.compile(r"core/|device/topology|device/visible_devices\.hpp$|device/sim/sim_identity\.hpp$")


def layer_of_file(path):
    """The layer that a file of the library belongs to."""
    parts = path.parts
    return parts[2] if parts[:2] == ("include", "gantry") and len(parts) > 3 else parts[0]


def included_project_path(quote, name):
    """The path below a layer that an include names ("memory/heap.hpp"), or None for a foreign header."""
    name = name.removeprefix("gantry/") if name.startswith("gantry/") else name
    if quote == '"' or name.split("/")[0] in ALL_LAYERS and "/" in name:
        return name
    return None


def complaint(layer, quote, name):
    """What is wrong with one include of a file in a layer, or None."""
    if name in ("gantry/gantry.hpp", "gantry.hpp"):
        return "the umbrella header is for users"
    target = included_project_path(quote, name)
    if target is None:
        return None
    target_layer = target.split("/")[0]
    if target_layer not in ALL_LAYERS or "/" not in target:
        return "an include of the project is written from the repository root"
    if target_layer == layer:
        return None
    if layer == "launcher":
        allowed = FOR_THE_LAUNCHER.match(target)
        return None if allowed else "the launcher uses core, device/topology, device/visible_devices and device/sim/sim_identity only"
    if target_layer == "launcher" or LAYERS.index(target_layer) > LAYERS.index(layer):
        return f"{layer} must not know {target_layer}"
    return None


def violations(root):
    found = []
    for path in code_files(root, ["include/gantry", *ALL_LAYERS]):
        if path.name == "gantry.hpp" and len(path.parts) == 3:
            continue
        for number, line in enumerate(read_lines(root / path), 1):
            match = INCLUDE.match(line)
            problem = match and complaint(layer_of_file(path), *match.groups())
            if problem:
                found.append(f"{path}:{number}: {line.strip()}: {problem}")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
