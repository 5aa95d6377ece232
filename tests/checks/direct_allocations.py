"""Fails on an allocation from the driver that the caches of the process do not make room for.

memory/driver_memory.hpp has the functions that do; Note [Direct allocations] says why.
"""

import re

from source_tree import LAYERS, code_files, read_lines, run_check

CALLS = r"allocate|allocate_pinned|allocate_async|create_chunk|register_host"
DRIVER_CALL = re.compile(rf"\bdriver(?:\(\))?_?\s*(?:\.|->)\s*(?:{CALLS})\s*\(")
CUDA_CALL = re.compile(r"\b(?:cudaMalloc\w*|cudaHostAlloc|cudaHostRegister|cuMem(?:Alloc\w*|Create|HostAlloc|HostRegister))\s*\(")
# The allocators themselves, which have recoveries of their own, and a benchmark of the driver.
ALLOCATORS = {
    "memory/async/async_pool.hpp",
    "memory/arenas/chunk_store.cpp",
    "memory/driver_memory.cpp",
    "device/host_pages.cpp",
    "memory/arenas/segment_arena.cpp",
    "tools/replay/backend.cpp",
}


def violations(root):
    found = []
    for path in code_files(root, ["include/gantry", *LAYERS, "compat", "tools"]):
        # compat/cudart is a driver's interface itself, without a cache of its own.
        if path.parts[:2] in (("device", "cuda"), ("device", "sim"), ("compat", "cudart")) or path.as_posix() in ALLOCATORS:
            continue
        for number, line in enumerate(read_lines(root / path), 1):
            code = line.split("//")[0]
            if DRIVER_CALL.search(code) or CUDA_CALL.search(code):
                found.append(f"{path}:{number}: {line.strip()}: use memory/driver_memory.hpp")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
