#!/usr/bin/env python3
"""PyTorch's process groups and its distributed training, on whatever stands in NCCL's place.

Usage: torch_training.py [RANKS]

Each rank is a process. Every operation of a group is compared with the same arithmetic on the host, and training with DDP, FSDP2
and tensor parallelism with training by one process. Prints a line for each case and rank; exit code 1 if one is wrong.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
REDUCED = [*FLOATS, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8]
MOVED = [*REDUCED, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2]
STEPS = 20
TOLERANCE = 1e-6  # ranks add gradients in another order than one process


class Checks:
    def __init__(self, rank):
        self.rank = rank
        self.wrong = 0

    def equal(self, case, got, expected):
        right = torch.equal(got.cpu().contiguous().view(torch.uint8), expected.cpu().contiguous().view(torch.uint8))
        if not right:
            self.wrong += 1
            print(f"rank {self.rank}: {case} {got.dtype}[{got.numel()}] is wrong", flush=True)

    def close(self, case, got, expected):
        most = max((a.float() - b.float()).abs().max().item() for a, b in zip(got, expected))
        self.wrong += most > TOLERANCE
        print(f"rank {self.rank}: {case} differs by {most:.1e} at most", flush=True)


def check_reductions(checks, inputs, rank, size, device):
    mine, dtype = inputs[rank].to(device), inputs[0].dtype
    total = sum(one.double() for one in inputs)
    result = mine.clone()
    dist.all_reduce(result)
    checks.equal("all_reduce", result, total.to(dtype))
    for op, expected in ((dist.ReduceOp.MAX, torch.stack(inputs).double().amax(0)), (dist.ReduceOp.MIN, torch.stack(inputs).double().amin(0))):
        result = mine.clone()
        dist.all_reduce(result, op)
        checks.equal(str(op), result, expected.to(dtype))
    result = mine.clone()
    dist.reduce(result, size - 1)
    checks.equal("reduce", result, total.to(dtype) if rank == size - 1 else inputs[rank])
    result = torch.empty_like(mine)
    dist.reduce_scatter_tensor(result, torch.cat([mine] * size))
    checks.equal("reduce_scatter_tensor", result, total.to(dtype))
    if dtype in FLOATS:
        result = mine.clone()
        dist.all_reduce(result, dist.ReduceOp.AVG)
        checks.equal("avg", result, (total / size).to(dtype))


def check_moves(checks, inputs, rank, size, device):
    mine, joined = inputs[rank].to(device), torch.cat(inputs)
    result = mine.clone()
    dist.broadcast(result, size - 1)
    checks.equal("broadcast", result, inputs[-1])
    result = torch.empty(mine.numel() * size, dtype=mine.dtype, device=device)
    dist.all_gather_into_tensor(result, mine)
    checks.equal("all_gather_into_tensor", result, joined)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    checks.equal("all_gather", torch.cat(parts), joined)
    dist.gather(mine, parts if rank == 0 else None, 0)
    if rank == 0:
        checks.equal("gather", torch.cat(parts), joined)
    result = torch.empty_like(mine)
    dist.scatter(result, [one.to(device) for one in inputs] if rank == 0 else None, 0)
    checks.equal("scatter", result, inputs[rank])
    if mine.numel() % size == 0:
        dist.all_to_all_single(result, mine)
        checks.equal("all_to_all_single", result, torch.cat([one.chunk(size)[rank] for one in inputs]))
    to, source = (rank + 1) % size, (rank - 1) % size
    result = torch.empty_like(mine)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, result, source)]):
        work.wait()
    checks.equal("batch_isend_irecv", result, inputs[source])


def check_operations(checks, rank, size, device):
    generator = torch.Generator().manual_seed(1)
    for dtype in MOVED:
        for count in (1, 1000, 1 << 20):
            values = 2 if dtype == torch.bool else 8
            inputs = [torch.randint(0, values, (count,), generator=generator).to(dtype) for _ in range(size)]
            if dtype in REDUCED:
                check_reductions(checks, inputs, rank, size, device)
            check_moves(checks, inputs, rank, size, device)
    rows = [3 + (rank + peer) % size for peer in range(size)]
    sent = torch.arange(sum(rows), dtype=torch.float32, device=device)
    result = torch.empty_like(sent)
    dist.all_to_all_single(result, sent, rows, rows)
    dist.barrier()
    print(f"rank {rank}: {checks.wrong} operations are wrong", flush=True)


def make_model(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16)).to(device)


def train(model, batches, rows):
    optimizer = torch.optim.SGD(model.parameters(), 0.05, foreach=False)  # parameters of two kinds do not go together
    for inputs, targets in batches:
        optimizer.zero_grad()
        ((model(inputs[rows]) - targets[rows]) ** 2).mean().backward()
        optimizer.step()
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone() for p in model.parameters()]


def check_training(checks, rank, size, device):
    generator = torch.Generator().manual_seed(5)
    batches = [tuple(torch.randn(32 * size, width, generator=generator).to(device) for width in (64, 16)) for _ in range(STEPS)]
    mine = slice(32 * rank, 32 * rank + 32)
    expected = train(make_model(device), batches, slice(None))
    first, second = (train(DistributedDataParallel(make_model(device), device_ids=[device]), batches, mine) for _ in range(2))
    checks.close("DDP", first, expected)
    for again, before in zip(second, first):
        checks.equal("DDP, run again,", again, before)
    model = make_model(device)
    for part in model:
        if isinstance(part, nn.Linear):
            fully_shard(part)
    fully_shard(model)
    checks.close("FSDP2", train(model, batches, mine), expected)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(make_model(device), init_device_mesh("cuda", (size,)), plan)
    checks.close("tensor parallelism", train(model, batches, slice(None)), expected)


def check_graph(checks, rank, size, device):
    inputs = torch.full((1000,), float(rank + 1), device=device)
    result = torch.zeros_like(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result.copy_(inputs)
        dist.all_reduce(result)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    checks.equal("all_reduce in a graph", result, torch.full((1000,), size * (size + 1) / 2))


def run_rank(rank, size):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513")
    dist.init_process_group("nccl", rank=rank, world_size=size)
    checks = Checks(rank)
    check_operations(checks, rank, size, device)
    check_training(checks, rank, size, device)
    check_graph(checks, rank, size, device)
    alone = dist.new_group([0])
    if rank == 0:
        dist.all_reduce(torch.ones(4, device=device), group=alone)
    dist.destroy_process_group()
    print(f"rank {rank}: {checks.wrong} wrong in all", flush=True)
    if checks.wrong:
        sys.exit(1)


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print(f"PyTorch {torch.__version__}, {size} ranks on {torch.cuda.device_count()} GPUs", flush=True)
    mp.spawn(run_rank, (size,), size)


if __name__ == "__main__":
    main()
