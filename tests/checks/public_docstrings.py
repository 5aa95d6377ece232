"""Fails on a public class, error, enum, concept or group of functions without the version that it came with, and on a
class or a function of EXAMPLES without an example. Headers of extend/ are not stable, and have no versions.

`@since 0.3` is the last line of a docstring. A docstring of the namespace stands for all functions of the header; a
function that came later has a version of its own. An example is at most six lines of code.
"""

import pathlib
import re

from header_docstrings import docstrings, public_headers
from source_tree import code_files, run_check

TYPES = {"class", "struct", "enum", "union", "concept", "error"}
MOST_LINES = 6
# The functions that readers look up first, by header.
EXAMPLES = {
    "collectives/comm.hpp": "all_reduce broadcast gather reduce_add scatter",
    "collectives/communicator.hpp": "all_gather all_to_all broadcast reduce_scatter split",
    "device/device.hpp": "devices synchronize",
    "device/peer.hpp": "can_access_peer",
    "device/properties.hpp": "device_properties",
    "kernels/launch.hpp": "launch parallel_for",
    "kernels/trace.hpp": "start",
    "memory/caching_allocator.hpp": "allocate allocate_raw empty_cache set_fraction",
    "memory/history.hpp": "record_history",
    "memory/oom_handler.hpp": "add_oom_handler",
    "memory/pinned_allocator.hpp": "pinned",
    "memory/snapshot.hpp": "save_snapshot snapshot",
    "memory/stats.hpp": "allocated max_allocated mem_get_info reset_peak_stats stats summary",
    "streams/graph.hpp": "replay",
    "streams/host_function.hpp": "launch_host_function",
    "streams/sanitizer.hpp": "enable",
    "tensor/conditional.hpp": "graph_if graph_while",
    "tensor/contractions.hpp": "einsum",
    "tensor/factories.hpp": "arange empty eye from_blob full linspace ones tensor zeros",
    "tensor/graphed.hpp": "make_graphed",
    "tensor/jit.hpp": "elementwise",
    "tensor/linalg.hpp": "matmul",
    "tensor/npy.hpp": "save_npy",
    "tensor/random.hpp": "manual_seed_all rand randint randn",
    "tensor/reductions.hpp": "softmax sum",
    "tensor/safetensors.hpp": "save_safetensors",
    "tensor/shape_ops.hpp": "cat stack",
    "tensor/sorting.hpp": "sort topk",
    "tensor/tensor.hpp": "clone copy_ record_stream to_vector view",
}


def known_versions(root):
    """0.1 and the versions of CHANGELOG.md, also the one that is being made."""
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return {"0.1", *re.findall(r"^## \[(\d+\.\d+)", changelog, re.MULTILINE), *re.findall(r"^What becomes (\d+\.\d+)", changelog, re.MULTILINE)}


def needs_version(docstring, has_group):
    if docstring.name.startswith(("std::", "operator", "__", "GANTRY_")):
        return False
    return docstring.kind in TYPES | {"namespace"} or (docstring.kind == "function" and not has_group)


def wrong_versions(path, found, known):
    has_group = any(docstring.kind == "namespace" for docstring in found)
    for docstring in found:
        place = f"{path}:{docstring.line}: {docstring.kind} {docstring.name}"
        versions = docstring.versions
        if not versions:
            if needs_version(docstring, has_group):
                yield f"{place}: expected a version, such as '@since {max(known)}'"
        elif len(versions) > 1 or not docstring.lines[-1].startswith("@since"):
            yield f"{place}: expected one version, in the last line"
        elif versions[0] not in known:
            yield f"{place}: expected a version of CHANGELOG.md, but got {versions[0]}"


def wrong_examples(path, found, members):
    for docstring in found + members:
        for number, code in docstring.examples():
            if len(code) > MOST_LINES:
                yield f"{path}:{number}: expected at most {MOST_LINES} lines of an example, but got {len(code)}"
        if docstring.lines.count("@code") != docstring.lines.count("@endcode"):
            yield f"{path}:{docstring.line}: expected an @endcode for each @code"
    for docstring in found:
        if docstring.kind == "class" and "::" not in docstring.name and not docstring.examples():
            yield f"{path}:{docstring.line}: class {docstring.name}: expected an example"
    with_example = {docstring.name for docstring in found + members if docstring.examples()}
    for name in EXAMPLES.get(str(path.relative_to("include/gantry")), "").split():
        if name not in with_example:
            yield f"{path}: function {name}: expected an example"


def find_violations(root):
    known, shown = known_versions(root), public_headers(root)
    found = []
    for path in code_files(root, ["include"], {".hpp"}):
        if pathlib.Path("include/gantry/extend") in path.parents:
            continue
        text = (root / path).read_text(encoding="utf-8")
        outer = [docstring for docstring in docstrings(text) if not any(line.startswith("@cond") for line in docstring.lines)]
        found += wrong_versions(path, outer, known)
        if path in shown:
            found += wrong_examples(path, outer, docstrings(text, "  "))
    return found


if __name__ == "__main__":
    run_check(__doc__, find_violations)
