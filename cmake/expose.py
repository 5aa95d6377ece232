#!/usr/bin/env python3
"""Makes the hidden names of gantry in an object file visible, in place.

Usage: expose.py OBJECT

The objects of libgantry hide what is not public. Tests that reach inside link a shared library of the same objects, so
their names must be visible there. Only 64-bit ELF files in this machine's byte order are read (ELF-64 Object File
Format 1.5): the visibility of a symbol is the low two bits of st_other.
"""
import mmap
import struct
import sys

HEADER = struct.Struct("=16sHHIQQQIHHHHHH")
SECTION = struct.Struct("=IIQQQQIIQQ")
SYMBOL = struct.Struct("=IBBHQQ")
SYMTAB = 2
GLOBAL = 1
WEAK = 2
HIDDEN = 2


def expose(data):
    """Exposes the names in the object file `data`; the number of them."""
    magic, *_, sections_at, _, _, _, _, section_bytes, count, _ = HEADER.unpack_from(data)
    if not magic.startswith(b"\x7fELF\x02") or section_bytes != SECTION.size:
        raise ValueError("expected a 64-bit ELF file")
    if count == 0:  # more than the header can tell
        count = SECTION.unpack_from(data, sections_at)[5]
    sections = [SECTION.unpack_from(data, sections_at + i * SECTION.size) for i in range(count)]
    exposed = 0
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind != SYMTAB:
            continue
        names_at = sections[link][4]
        for at in range(offset, offset + size, SYMBOL.size):
            name, info, other, *_ = SYMBOL.unpack_from(data, at)
            if info >> 4 not in (GLOBAL, WEAK) or other & 3 != HIDDEN:
                continue
            begin = names_at + name
            if b"6gantry" not in data[begin:data.find(b"\0", begin)]:
                continue
            data[at + 5] = other & ~3
            exposed += 1
    return exposed


def main():
    with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        if expose(data) == 0:
            sys.exit(f"{sys.argv[1]}: no hidden name of gantry")


if __name__ == "__main__":
    main()
