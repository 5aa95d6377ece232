"""Compiles every public header alone.

Modes: `complete`, the compiler accepts it without a warning; `nvcc`, the front ends for host and device do; `outdated`, in C++17
it gives one error, which names C++20.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

OUTDATED = "gantry needs C++20"
# In place of headers of other libraries, which may be absent; this MPI has numbers as handles.
CCCL = """#pragma once
typedef struct CUstream_st* cudaStream_t;
namespace cuda {
class stream_ref {
 public:
  stream_ref(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};
namespace mr {
struct device_accessible {};
}  // namespace mr
}  // namespace cuda
"""
STAND_INS = {"mpi.h": "#pragma once\ntypedef int MPI_Comm;\n", "cuda/memory_resource": CCCL}


def compile_alone(options, header):
    """What is wrong with a translation unit that includes this header only, or an empty text."""
    flags = {
        "complete": ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"],
        "outdated": ["-std=c++17", "-fsyntax-only"],
        # One architecture: the front ends do not differ between them. ptxas and the host's compiler do not run.
        "nvcc": ["-std=c++20", "-arch=sm_90", "--cuda", "-fdevice-syntax-only", "-o", os.devnull],
    }[options.mode]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / ("alone.cu" if options.mode == "nvcc" else "alone.cpp")
        source.write_text(f"#include <{header}>\n", encoding="utf-8")
        for name, text in STAND_INS.items():
            stand_in = pathlib.Path(folder) / name
            stand_in.parent.mkdir(exist_ok=True)
            stand_in.write_text(text, encoding="utf-8")
        command = [*options.compiler, *flags, f"-I{options.include_dir}", f"-I{folder}", source]
        result = subprocess.run(command, text=True, capture_output=True, check=False)
    output = result.stdout + result.stderr
    if options.mode == "outdated":
        errors = [line for line in output.splitlines() if "error:" in line]
        return "" if len(errors) == 1 and OUTDATED in errors[0] else f"expected one error, but got {len(errors)}\n{output[:2000]}"
    return output if result.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["complete", "nvcc", "outdated"], default="complete")
    parser.add_argument("include_dir", type=pathlib.Path)
    parser.add_argument("compiler", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    headers = sorted(path.relative_to(options.include_dir) for path in options.include_dir.rglob("*.hpp"))
    if not headers:
        sys.exit(f"{options.include_dir}: no header was found here")
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count(), 4)) as pool:
        complaints = list(pool.map(lambda header: compile_alone(options, header), headers))
    failed = 0
    for header, complaint in zip(headers, complaints):
        if complaint:
            failed += 1
            print(f"--- {header}\n{complaint}")
    print(f"{len(headers)} headers, {failed} of them failed ({options.mode})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
