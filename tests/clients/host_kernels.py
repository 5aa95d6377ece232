"""The kernels by which nccl-tests makes and checks its elements, as functions of the host: for simulated devices."""
import re

LAUNCH = "cudaLaunchKernel(fn, grid, block, args, 0, stream)"
# The parameters of the kernels, in the order of their launches; the last one has its operation's type at each choice.
PREPARED = ["void*, intptr_t, ReduceOp, int, int, uint64_t, intptr_t", "void*, intptr_t, ReduceOp, int, uint64_t, intptr_t",
            "void const*, void const*, intptr_t, unsigned, int64_t*"]
CHECKED = "T const*, intptr_t, {}, int, uint64_t, intptr_t, unsigned, int64_t*"
COUNT = r'asm volatile\("red\.global\.add\.u64.*"memory"\);'


def replaced(text, old, new, count):
    """`text` with new for each `old`, a pattern. Fails unless there are `count`: the client has changed."""
    text, found = re.subn(old, new, text)
    if found != count:
        raise ValueError(f"expected {count} places of {old!r} in the client's kernels, but found {found}")
    return text


def host_kernels(text):
    """The source of nccl-tests' verifiable.cu for the host's compiler, behind kernels_on_host.hpp."""
    text = replaced(text, COUNT, "__atomic_fetch_add(bad_elt_n, bad, __ATOMIC_RELAXED);", 2)
    text = replaced(text, r"&(verifyInline2<T, Uint, (ReduceNil|decltype\(op\))>);",
                    lambda found: f"&{found[1]}; run = &launch_on_host<{CHECKED.format(found[2])}>;", 2)
    text = replaced(text, r"(ReducePreMulSum oppremulsum;)", r"\1 HostLaunch run = nullptr;", 1)
    # On GPUs a division by 0, of the exponents of e4m3 among 8 ranks, has the largest number for its result.
    text = replaced(text, r"\bx = r/s < pn", "x = s != 0 && r/s < pn", 1)
    launches = iter([*(f"launch_on_host<{types}>(fn, args, stream)" for types in PREPARED), "run(fn, args, stream)"])
    text = replaced(text, r"\w+<<<.*>>>\(\);", "", 1)  # a test of the kernels, which nothing calls
    return replaced(text, re.escape(LAUNCH), lambda _: next(launches), 4)
