"""Writes the files of this folder. Those in the project were written by NumPy 2.4.6, PyTorch 2.15.0 and safetensors 0.8.0.

Element i of a tensor is i - 2 (i for u8, i is odd for bool).
"""

import io
import pathlib

import numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent


def values(shape, dtype):
    count = int(numpy.prod(shape))
    numbers = numpy.arange(count).reshape(shape)
    if dtype == "?":
        return numbers % 2 == 1
    return (numbers if dtype == "u1" else numbers - 2).astype(dtype)


def write_npy():
    for dtype in ["?", "u1", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", ">i2", ">f4", ">f8"]:
        name = dtype.replace("?", "b1").replace("<", "").replace(">", "big_")
        numpy.save(HERE / f"{name}.npy", values((2, 3), dtype))
    numpy.save(HERE / "fortran.npy", numpy.asfortranarray(values((2, 3, 4), "<i4")))
    numpy.save(HERE / "scalar.npy", values((), "<f4"))
    numpy.save(HERE / "vector.npy", values((5,), "<f4"))
    numpy.save(HERE / "empty.npy", values((3, 0, 2), "<f4"))
    for version in [(2, 0), (3, 0)]:
        out = io.BytesIO()
        numpy.lib.format.write_array(out, values((2, 3), "<f4"), version)
        (HERE / f"version{version[0]}.npy").write_bytes(out.getvalue())
    numpy.save(HERE / "complex.npy", values((2,), "<c8"))
    numpy.save(HERE / "structured.npy", numpy.zeros(2, [("a", "<i4"), ("b", "<f4")]))


def write_npz():
    arrays = {f"f{size}": values((2, 3), f"<f{size}") for size in (2, 4, 8)}
    arrays |= {"fortran": numpy.asfortranarray(values((2, 3, 4), "<i4")), "scalar": values((), "<f4")}
    arrays |= {"empty": values((3, 0, 2), "<f4"), "größe/1": values((4,), "<i4"), "big": values((2, 3), ">i2")}
    numpy.savez(HERE / "arrays.npz", **arrays)
    numpy.savez_compressed(HERE / "compressed.npz", zeros=numpy.zeros(100, "<f4"))
    numpy.savez(HERE / "none.npz")


def write_safetensors():
    types = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
    names = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"]
    tensors = {}
    for name, dtype in zip(names, types):
        letters = {"bool": "?", "u8": "u1"}.get(name, "i8")
        tensors[name] = torch.from_numpy(values((2, 3), letters)).to(dtype)
    tensors["scalar"] = torch.tensor(-2.0)
    tensors["empty"] = torch.empty(3, 0, 2)
    tensors["größe \"1\"\n"] = torch.arange(4, dtype=torch.int32) - 2
    safetensors.torch.save_file(tensors, HERE / "all.safetensors", {"format": "pt"})
    safetensors.torch.save_file({"f8": torch.zeros(4, dtype=torch.float8_e4m3fn), "f32": torch.tensor([-2.0, -1.0])}, HERE / "float8.safetensors")
    safetensors.torch.save_file({}, HERE / "none.safetensors")


write_npy()
write_npz()
write_safetensors()
