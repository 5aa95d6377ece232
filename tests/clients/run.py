#!/usr/bin/env python3
"""Runs programs that others wrote for NCCL on libgantry_nccl.so, and tells which of their cases are right.

Usage: run.py BUILD WORK nccl-tests [--source DIR] [--gpus N] [--types all] [--operators all] [--sizes 8 256M 32]
                                          [--beside-nccl | --simulated]
       run.py BUILD WORK nccl-examples [--source DIR] [--gpus N] [--simulated]
       run.py BUILD WORK jacobi [--source DIR] [--ranks N] [--beside-nccl]
       run.py BUILD WORK llm.c [--source DIR] [--ranks N] [--gpus N] [--beside-nccl]
       run.py BUILD WORK torch [--ranks N]
       run.py BUILD WORK rmm [--source DIR --wheels DIR] [--per-thread] [--jobs N] [--seconds N] [--simulated]

BUILD is a build tree of gantry with CUDA; WORK is a folder for clones, builds and logs. clients.toml has the commits.

  nccl-tests  all its programs, with its own check of every element: in one process with N GPUs, and in N processes of one GPU
              under mpirun, if MPI is there. --beside-nccl runs them on NCCL as well, and prints the ratio of the times.
              --simulated runs them on N simulated devices; the host makes and checks the elements (host_kernels.py).
  nccl-examples  the examples of NCCL's documentation that have no kernels, on N devices. They check their results.
  jacobi      a solver in N processes under mpirun, which compares its result with one GPU's. Ranks share the GPU if there is one.
  llm.c       GPT-2 from random weights in N processes, in f32 and bf16, with and without sharded optimizer states: the loss falls, a
              second run has the same bits, and --beside-nccl compares losses. Processes share the GPUs if --gpus is less; NCCL cannot.
  torch       torch_training.py in N processes. Ranks share GPUs if there are fewer.
  rmm         RMM's own tests of resources and containers, with gantry's memory as the base resource; every test that passes with
              cudaMallocAsync there must pass. Without --source the programs in WORK run. DIR of --wheels has two wheels of PyPI, unpacked:
              see clients.toml. --per-thread builds and runs them with the default stream of each thread, as RMM does, too. --simulated
              runs gantry's side only, without kernels.

Exit code 1 if an element is wrong or a program fails.
"""
import argparse
import array
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tomllib

import host_kernels
import rmm_suite

HERE = pathlib.Path(__file__).resolve().parent
# size, count, type, perhaps redop, root, then time, algbw, busbw and wrong elements, out of place and in place
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+(\w+)\s+(?:([a-z]\w*)\s+)?(-?\d+)\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+(\d+|N/A)\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+(\d+|N/A)")


def preload(build, simulated=0):
    """The beginning of a command whose program has gantry in NCCL's place, and CUDA's on so many simulated devices."""
    libraries = ["libgantry_cudart.so", "libgantry_nccl.so"] if simulated else ["libgantry_nccl.so"]
    devices = [f"GANTRY_SIM_DEVICES={simulated}"] if simulated else []
    return ["env", f"LD_PRELOAD={':'.join(str(build / 'lib' / name) for name in libraries)}", *devices]


def fetch(client, work, source):
    """The source of a client: a copy of `source`, or a clone."""
    folder = work / "source"
    if folder.exists():
        return folder
    if source:
        return shutil.copytree(source, folder)
    subprocess.run(["git", "clone", "--quiet", client["repository"], folder], check=True)
    subprocess.run(["git", "-C", folder, "checkout", "--quiet", client["commit"]], check=True)
    return folder


def build_nccl_tests(folder, work, architectures, simulated):
    out = work / "build"
    if out.exists():
        return out
    compiler = shutil.which("mpicc")
    mpi = ["MPI=1", f"MPI_HOME={pathlib.Path(compiler).resolve().parent.parent}"] if compiler else []
    flags = dict(os.environ)
    if compiler:
        shown = subprocess.run([compiler, "--showme:incdirs"], capture_output=True, text=True, check=False).stdout.split()
        flags["CPLUS_INCLUDE_PATH"] = ":".join(shown)
    codes = " ".join(f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures)
    if simulated:  # in the place of the object that make would build
        host_object = out / "verifiable" / "verifiable.o"
        host_object.parent.mkdir(parents=True)
        source = work / "verifiable.cpp"
        source.write_text(host_kernels.host_kernels((folder / "verifiable" / "verifiable.cu").read_text(encoding="utf-8")), encoding="utf-8")
        subprocess.run(["g++", "-std=c++17", "-O2", "-DNCCL_OS_LINUX", "-I/usr/local/cuda/include", f"-I{folder / 'verifiable'}",
                        f"-I{folder / 'src'}", "-include", HERE / "kernels_on_host.hpp", "-c", source, "-o", host_object], check=True)
    subprocess.run(["make", "-C", folder / "src", f"-j{os.cpu_count()}", f"BUILDDIR={out}", f"NVCC_GENCODE={codes} -cudart shared",
                    "CUDA_HOME=/usr/local/cuda", *mpi], check=True, stdout=subprocess.DEVNULL, env=flags)
    return out


def rows_of(text):
    """{(size, type, operator, root, place): (µs, wrong elements)} of a program's output."""
    rows = {}
    for line in text.splitlines():
        if found := ROW.match(line):
            size, dtype, op, root, out_time, out_wrong, in_time, in_wrong = found.groups()
            for place, time, wrong in (("out", out_time, out_wrong), ("in", in_time, in_wrong)):
                if wrong != "N/A":
                    rows[int(size), dtype, op, int(root), place] = (float(time), int(wrong))
    return rows


def run_program(command, log):
    environment = dict(os.environ, NCCL_NVLS_ENABLE="0")  # multicast stays off
    done = subprocess.run([str(part) for part in command], env=environment, text=True, capture_output=True, check=False)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    return done.returncode, rows_of(done.stdout)


def run_nccl_tests(client, args):
    programs = build_nccl_tests(fetch(client, args.work, args.source), args.work, args.architectures, args.simulated)
    simulated = args.gpus if args.simulated else 0
    begin, end, factor = args.sizes
    ways = {"one process": ["-g", str(args.gpus)]}
    starts = {"one process": []}
    if shutil.which("mpirun") and args.gpus > 1:
        ways["processes"] = ["-g", "1"]
        starts["processes"] = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(args.gpus)]
    bad = 0
    for program in args.programs or client["programs"]:
        for way, option in ways.items():
            if way == "one process" and args.gpus > 2 and program in client["rounds"]:
                continue
            command = [programs / f"{program}_perf", "-b", begin, "-e", end, "-f", factor, "-d", args.types, "-o", args.operators, *option,
                       *args.options.split()]
            log = args.work / f"{program}-{way.replace(' ', '-')}.txt"
            code, rows = run_program([*starts[way], *preload(args.build, simulated), *command], log)
            wrong = sum(count for _, count in rows.values())
            bad += code != 0 or wrong > 0 or not rows
            line = f"{program:16} {way:12} exit code {code}, {len(rows)} rows, {wrong} wrong elements"
            if args.beside_nccl:
                _, peers = run_program([*starts[way], *command], log.with_suffix(".nccl.txt"))
                line += beside(rows, peers)
            print(line, flush=True)
    return bad


def beside(rows, peers):
    """NCCL's times ÷ gantry's: geometric means of small, middle and large messages, and the least ratio."""
    ratios = {key: peers[key][0] / rows[key][0] for key in rows if key in peers and rows[key][0] > 0}
    text = ""
    for name, least, most in (("≤1M", 0, 1 << 20), ("<16M", (1 << 20) + 1, (16 << 20) - 1), ("≥16M", 16 << 20, 1 << 62)):
        part = {key: ratio for key, ratio in ratios.items() if least <= key[0] <= most}
        if part:
            worst = min(part, key=part.get)
            text += f"; {name} {statistics.geometric_mean(part.values()):.2f}, least {part[worst]:.2f} at {' '.join(map(str, worst))}"
    return text


def run_nccl_examples(client, args):
    folder = fetch(client, args.work, args.source)
    header = args.work / "nccl.h"
    version = (folder / "makefiles" / "version.mk").read_text(encoding="utf-8")
    major, minor, patch = (int(re.search(rf"NCCL_{part}\s*:=\s*(\d+)", version)[1]) for part in ("MAJOR", "MINOR", "PATCH"))
    numbers = {"Major": major, "Minor": minor, "Patch": patch, "Suffix": "", "Version": major * 10000 + minor * 100 + patch}
    text = (folder / "src" / "nccl.h.in").read_text(encoding="utf-8")
    header.write_text(re.sub(r"\$\{nccl:(\w+)\}", lambda found: str(numbers[found[1]]), text), encoding="utf-8")
    examples = folder / "docs" / "examples"
    devices = str(args.gpus)
    bad = 0
    for name in client["programs"]:
        with_mpi = name.endswith("_mpi")
        if with_mpi and not shutil.which("mpicxx"):
            print(f"{name}: left out, as there is no MPI", flush=True)
            continue
        program = args.work / name.replace("/", "_")
        compiler = ["mpicxx", "-DMPI_SUPPORT"] if with_mpi else ["g++"]
        libraries = ["-L/usr/local/cuda/lib64", "-lcudart", f"-L{args.build / 'lib' / 'nccl'}", "-l:libnccl.so.2", "-Wl,--allow-shlib-undefined"]
        subprocess.run([*compiler, "-std=c++17", "-O1", f"-I{args.work}", f"-I{examples / 'common' / 'include'}", "-I/usr/local/cuda/include",
                        examples / name / "c" / "main.cc", examples / "common" / "src" / "utils.cc", "-o", program, *libraries, "-lpthread"],
                       check=True)
        start = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", devices] if with_mpi else []
        memory = ["GANTRY_SIM_MEMORY=4G"] if args.simulated else []
        log = args.work / f"{program.name}.txt"
        code, _ = run_program([*start, *preload(args.build, args.gpus if args.simulated else 0), *memory, program], log)
        bad += code != 0
        print(f"{name}: exit code {code}" + (f", {last_line(log)}" if code else ""), flush=True)
    return bad


def last_line(log):
    return (log.read_text(encoding="utf-8").strip().splitlines() or ["no output"])[-1]


def run_jacobi(client, args):
    folder = fetch(client, args.work, args.source)
    home = next(path.parent.parent for path in map(pathlib.Path, args.nccl_headers) if path.exists())
    bad = 0
    # The Makefiles' C++14 is too old for the CUB of CUDA 13.
    flags = f"-DHAVE_CUB -lineinfo -std=c++17 -gencode=arch=compute_{args.architectures[0]},code=sm_{args.architectures[0]}"
    for program in client["programs"]:
        subprocess.run(["make", "-C", folder / program, f"NVCC_FLAGS={flags}", f"NCCL_HOME={home}"], check=True, stdout=subprocess.DEVNULL)
        start = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(args.ranks)]
        jacobi = [folder / program / "jacobi", "-niter", "1000", "-nx", "4096", "-ny", "4096"]
        log = args.work / f"jacobi-{program}.txt"
        code, _ = run_program([*start, *preload(args.build), *jacobi], log)
        bad += code != 0
        line = f"{program:16} exit code {code}: {last_line(log)}"
        if args.beside_nccl:
            peer = log.with_suffix(".nccl.txt")
            run_program([*start, *jacobi], peer)
            line += f"; on NCCL: {last_line(peer)}"
        print(line, flush=True)
    return bad


def write_tokens(path, count, seed):
    """A file of tokens for llm.c: short sentences of few words, so that a loss falls."""
    draw = random.Random(seed)
    words = [[draw.randrange(50257) for _ in range(8)] for _ in range(200)]
    tokens = array.array("H", [token for _ in range(count // 8) for token in words[draw.randrange(200)]])
    path.write_bytes(array.array("i", [20240520, 1, len(tokens)] + [0] * 253).tobytes() + tokens.tobytes())


def build_llm_c(folder, args):
    compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    for precision in ("FP32", "BF16"):
        if not (args.work / precision).exists():
            subprocess.run([compiler, "-O3", "-std=c++17", "-w", f"-arch=sm_{args.architectures[0]}", "-DMULTI_GPU", f"-DENABLE_{precision}",
                            "-include", HERE / "llm_c.hpp", folder / "train_gpt2.cu", "-o", args.work / precision, "-lcublas", "-lcublasLt",
                            "-lnccl", "-lnvidia-ml", "-L/usr/local/cuda/lib64/stubs"], check=True)
    for name, seed in (("train.bin", 1), ("val.bin", 2)):
        write_tokens(args.work / name, 1 << 20, seed)


def train(args, precision, stage, ranks, start, log):
    """Exit codes, losses, norms of gradients and milliseconds of each step."""
    batch = 8 // ranks
    command = [*start, str(args.work / precision), "-i", str(args.work / "train.bin"), "-j", str(args.work / "val.bin"), "-e", "d12", "-b", str(batch),
               "-t", "512", "-d", str(8 * 512), "-x", "20", "-v", "1000", "-m", "2", "-s", "0", "-f", "0", "-z", str(stage), "-pn", str(ranks),
               "-pg", str(min(ranks, args.gpus)), "-pi", "fs", "-pf", str(args.work)]
    for old in args.work.glob("ncclUniqueId*"):
        old.unlink()
    environment = dict(os.environ, NCCL_NVLS_ENABLE="0")
    processes = [subprocess.Popen([*command, "-pr", str(rank)], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for rank in range(ranks)]
    texts = [process.communicate()[0] for process in processes]
    log.write_text("".join(texts), encoding="utf-8")
    steps = re.findall(r"^step +\d+/\d+ \| loss ([\d.]+|nan) .*?norm ([\d.]+|nan) .*?\| ([\d.]+) ms", texts[0], re.M)
    return [process.returncode for process in processes], [(loss, norm) for loss, norm, _ in steps], [float(ms) for _, _, ms in steps]


def run_llm_c(client, args):
    folder = fetch(client, args.work, args.source)
    build_llm_c(folder, args)
    bad = 0
    for precision in ("FP32", "BF16"):
        for stage in (0, 1):
            log = args.work / f"llm.c-{precision}-{stage}.txt"
            codes, losses, times = train(args, precision, stage, args.ranks, preload(args.build), log)
            _, again, _ = train(args, precision, stage, args.ranks, preload(args.build), log.with_suffix(".again.txt"))
            right = not any(codes) and len(losses) == 20 and losses == again and float(losses[-1][0]) < float(losses[0][0])
            line = f"{precision} stage {stage}: exit codes {codes}, loss {' to '.join(pair[0] for pair in losses[:1] + losses[-1:])}, " \
                   f"a second run is {'equal' if again == losses else 'not equal'}"
            if times:
                line += f", {statistics.median(times):.2f} ms a step"
            if args.beside_nccl:
                codes, theirs, times = train(args, precision, stage, args.ranks, [], log.with_suffix(".nccl.txt"))
                far = max((abs(float(a) - float(b)) for (a, _), (b, _) in zip(losses, theirs)), default=float("nan"))
                right = right and len(theirs) == 20 and far < (1e-2 if precision == "FP32" else 0.1)
                line += f"; on NCCL: exit codes {codes}, {far:.6f} apart" + (f", {statistics.median(times):.2f} ms" if times else "")
            bad += not right
            print(line, flush=True)
    return bad


def run_torch(args):
    command = [*preload(args.build), sys.executable, HERE / "torch_training.py", str(args.ranks)]
    code, _ = run_program(command, args.work / "torch.txt")
    print((args.work / "torch.txt").read_text(encoding="utf-8").rstrip())
    return code != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("client", choices=["nccl-tests", "nccl-examples", "jacobi", "llm.c", "torch", "rmm"])
    parser.add_argument("--source", type=pathlib.Path, help="a copy of the client's source, where nothing can be fetched")
    parser.add_argument("--wheels", type=pathlib.Path, help="a folder with the unpacked wheels of librmm and rapids-logger")
    parser.add_argument("--per-thread", action="store_true", help="CUDA_API_PER_THREAD_DEFAULT_STREAM for RMM's tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers or programs of RMM at a time")
    parser.add_argument("--seconds", type=float, default=600, help="for all programs of RMM together")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--types", default="all")
    parser.add_argument("--operators", default="all")
    parser.add_argument("--programs", nargs="+", help="of nccl-tests; all without it")
    parser.add_argument("--options", default="", help="further options of the programs, in one argument")
    parser.add_argument("--sizes", nargs=3, default=["8", "256M", "32"], metavar=("FIRST", "LAST", "FACTOR"))
    parser.add_argument("--architectures", nargs="+", default=["90"], help="compute capabilities without a dot")
    parser.add_argument("--nccl-headers", nargs="+", default=["/usr/include/nccl.h", "/usr/local/include/nccl.h"])
    parser.add_argument("--beside-nccl", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    args = parser.parse_args()
    args.build, args.work = args.build.resolve(), args.work.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    clients = tomllib.loads((HERE / "clients.toml").read_text(encoding="utf-8"))
    if args.client == "torch":
        bad = run_torch(args)
    elif args.client == "rmm":
        bad = rmm_suite.run_rmm(clients["rmm"], args, args.source and args.source.resolve())
    else:
        bad = {"nccl-tests": run_nccl_tests, "nccl-examples": run_nccl_examples, "jacobi": run_jacobi, "llm.c": run_llm_c}[args.client](clients[args.client], args)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
