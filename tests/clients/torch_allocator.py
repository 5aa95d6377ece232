#!/usr/bin/env python3
"""A PyTorch training loop whose memory comes from gantry_malloc of libgantry.so, beside PyTorch's own allocator.

Usage: torch_allocator.py LIBGANTRY [--steps N]

Each allocator has a process of its own, with the same seed. Batches have changing sizes, so that blocks are split and joined.
Prints the loss, the time of a step and the memory of the GPU at the end; exit code 1 if the losses differ, 77 without a GPU.
"""
import argparse
import json
import subprocess
import sys
import time


def train(library, steps):
    import torch

    if library:
        memory = torch.cuda.memory
        memory.change_current_allocator(memory.CUDAPluggableAllocator(library, "gantry_malloc", "gantry_free"))
    free, _ = torch.cuda.mem_get_info()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 16)).cuda()
    optimiser = torch.optim.Adam(model.parameters(), 1e-4)
    side = torch.cuda.Stream()
    sizes = [256 + 977 * step % 8192 for step in range(steps)]
    start = None
    for step, rows in enumerate(sizes):
        if step == steps // 10:  # the allocator is warm
            torch.cuda.synchronize()
            start = time.perf_counter()
        with torch.cuda.stream(side):
            x = torch.randn(rows, 512, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        loss = (model(x) - x[:, :16].sin()).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        side.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    step_ms = (time.perf_counter() - start) / (steps - steps // 10) * 1000
    print(json.dumps({"loss": loss.item(), "step_ms": step_ms, "mib": (free - torch.cuda.mem_get_info()[0]) / 2**20}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libgantry.so")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--side", choices=["gantry", "PyTorch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        train(options.library if options.side == "gantry" else None, options.steps)
        return 0
    if subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True, check=False).returncode:
        print("torch_allocator.py: there is no PyTorch with a GPU")
        return 77
    losses = []
    print(f"{'allocator':12}{'loss':>12}{'ms a step':>12}{'MiB':>9}")
    for side in ("gantry", "PyTorch"):
        done = subprocess.run([sys.executable, __file__, options.library, "--steps", str(options.steps), "--side", side], stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        losses.append(result["loss"])
        print(f"{side:12}{result['loss']:12.6g}{result['step_ms']:12.3f}{result['mib']:9.0f}", flush=True)
    return int(abs(losses[0] / losses[1] - 1) > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
