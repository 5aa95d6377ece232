#!/usr/bin/env python3
"""Measures PyTorch where bench measures gantry; prints JSON {name: microseconds}.

Dispatch, allocation and copies go through PyTorch's C++ API (compiled here from peer_torch.cpp), graphs and torch.cuda.comm
through Python.
--build-only compiles and measures nothing.
"""
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.cuda.comm as comm

HERE = pathlib.Path(__file__).resolve().parent


def synchronize():
    for index in range(torch.cuda.device_count()):
        torch.cuda.synchronize(index)


def completion(results, failures, name, calls, call):
    """Measures `call`; one that fails does not lose the others."""
    try:
        results[name] = microseconds_of(calls, call)
    except Exception as error:
        failures[name] = str(error).partition("\n")[0]


def microseconds_of(calls, call):
    for _ in range(3):
        call()
    synchronize()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times) * 1e6


def measure_comm(results, failures):
    devices = list(range(torch.cuda.device_count()))
    count = len(devices)
    for size in (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20):
        calls = 10 if size > 1 << 20 else 50
        source = torch.ones(size // 4, device=0)
        inputs = [torch.ones(size // 4, device=d) for d in devices]
        parts = [torch.ones(size // 4 // count, device=d) for d in devices]
        completion(results, failures, f"comm/broadcast/{size}", calls, lambda: comm.broadcast(source, devices))
        completion(results, failures, f"comm/reduce_add/{size}", calls, lambda: comm.reduce_add(inputs, 0))
        completion(results, failures, f"comm/scatter/{size}", calls, lambda: comm.scatter(source, devices))
        completion(results, failures, f"comm/gather/{size}", calls, lambda: comm.gather(parts, destination=0))
    lists = [[torch.ones(1000 + i, device=d) for i in range(200)] for d in devices]
    completion(results, failures, "comm/broadcast_coalesced/200x4KB", 5, lambda: comm.broadcast_coalesced(lists[0], devices))
    completion(results, failures, "comm/reduce_add_coalesced/200x4KB", 5, lambda: comm.reduce_add_coalesced(lists, 0))


def measure_graph(results, failures):
    """A chain of 100 small kernels, eager from Python and as a graph."""
    tensor = torch.zeros(1024, device=0)

    def chain():
        for _ in range(100):
            tensor.add_(1)

    completion(results, failures, "graph/chain100/eager", 10, chain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    completion(results, failures, "graph/chain100/replay", 10, graph.replay)


def load_cpp():
    from torch.utils import cpp_extension

    with contextlib.redirect_stdout(sys.stderr):
        return cpp_extension.load(name="gantry_peer_torch", sources=[str(HERE / "peer_torch.cpp")],
                                  extra_cflags=["-O2"], with_cuda=True)


def measure_cpp(results):
    # The extension prints to the process's standard output: it is caught through a child.
    text = subprocess.run([sys.executable, __file__, "--cpp-only"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in text.splitlines():
        name, microseconds = line.split()
        results[name] = float(microseconds)


def main():
    if "--build-only" in sys.argv:
        load_cpp()
        return
    if "--cpp-only" in sys.argv:
        load_cpp().run()
        return
    results, failures = {}, {}
    try:
        measure_cpp(results)
    except Exception as error:
        failures["the C++ API"] = str(error).partition("\n")[0]
    measure_graph(results, failures)
    if torch.cuda.device_count() > 1:
        measure_comm(results, failures)
    json.dump({"torch": torch.__version__, "results": results, "failures": failures}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
