"""Holds the hot GPU kernels to budgets of instructions, registers, stack and code, from their compiled objects.

Usage: instruction_budgets.py CUOBJDUMP OBJECTS… [--table TABLE]

OBJECTS are folders of .cu.o files. TABLE (instruction_budgets.txt) has a row per kernel:
  object | kernel, a regular expression of its C++ name | access | elements | instructions | registers | stack | code | reason
`access` is a regular expression of the memory instruction of the loop that counts, and `elements` how many elements one of
these moves. The loop is the innermost one that has the instruction; of several, the one that has it most often. Its length
divided by its elements must not exceed `instructions`. A loop must not touch local memory. `code` are the bytes of the whole
kernel, which small operations fetch. "-" leaves a figure open.
Exits with 77 (skipped) where the objects have no code for sm_90 or a tool is missing.
"""
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
ARCHITECTURE = "sm_90"


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def rows_of(table):
    """The rows of the table, as lists of nine cells."""
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) != 9 or not cells[8]:
            sys.exit(f"{table.name}:{number}: expected 9 cells, the last of them a reason, but got: {line}")
        yield cells


def output_of(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{command[0]}: {(result.stderr or result.stdout).strip()}")
    return result.stdout


class Object:
    """The kernels of one object: their instructions and resources, by C++ name."""

    def __init__(self, cuobjdump, path):
        self.instructions = {}
        self.resources = {}
        code = []
        names = []
        for line in output_of([cuobjdump, "-arch", ARCHITECTURE, "-sass", path]).splitlines():
            if match := re.match(r"\s*Function : (\S+)", line):
                code = []
                names.append((match[1], code))
            elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line):
                code.append((int(match[1], 16), match[2]))
        usage = output_of([cuobjdump, "-arch", ARCHITECTURE, "-res-usage", path])
        sizes = {match[1]: (int(match[2]), int(match[3]))
                 for match in re.finditer(r"Function (\S+?):\s+REG:(\d+) STACK:(\d+)", usage)}
        plain = subprocess.run(["c++filt"], input="\n".join(name for name, _ in names), capture_output=True, text=True, check=True)
        for (mangled, code), name in zip(names, plain.stdout.replace("> >", ">>").splitlines()):
            self.instructions[name] = code
            self.resources[name] = sizes.get(mangled, (0, 0))


def is_counted(instruction):
    return not instruction.startswith("NOP")


def loops_of(code):
    """The instructions of each loop: from the target of a backward branch to the branch."""
    for at, instruction in code:
        match = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", instruction)
        if match and int(match[1], 16) < at:
            yield [text for address, text in code if int(match[1], 16) <= address <= at and is_counted(text)]


def counted_loop(code, access):
    """The loop that a row means and its number of accesses; None if no loop has one."""
    candidates = []
    for loop in sorted(loops_of(code), key=len):
        count = sum(re.search(access, text) is not None for text in loop)
        # A longer loop that has all of a shorter one is around it.
        if count and not any(set_of <= len(loop) and "\n".join(inner) in "\n".join(loop) for inner, _, set_of in candidates):
            candidates.append((loop, count, len(loop)))
    return max(candidates, key=lambda candidate: candidate[1], default=None)


def faults_of(cells, kernels):
    """What is wrong with the kernels of one row."""
    name, pattern, access, elements, most, registers, stack, most_code, _ = cells
    found = [kernel for kernel in kernels.instructions if re.search(pattern, kernel)]
    if len(found) != 1:
        return [f"expected one kernel of the name, but got {len(found)}"]
    faults = []
    used_registers, used_stack = kernels.resources[found[0]]
    code = kernels.instructions[found[0]]
    code_bytes = code[-1][0] + 16
    text = f"{used_registers} registers, {used_stack} bytes of stack, {code_bytes} of code"
    if most_code != "-" and code_bytes > int(most_code):
        faults.append(f"expected at most {most_code} bytes of code, but got {code_bytes}")
    if used_registers > int(registers):
        faults.append(f"expected at most {registers} registers, but got {used_registers}")
    if used_stack > int(stack):
        faults.append(f"expected at most {stack} bytes of stack, but got {used_stack}")
    if access != "-":
        loop = counted_loop(code, access)
        if loop is None:
            return [*faults, f"expected a loop with {access}, but got none"]
        per_element = loop[2] / (loop[1] * int(elements))
        text = f"{per_element:.2f} instructions an element ({loop[2]} for {loop[1] * int(elements)}), {text}"
        if per_element > float(most):
            faults.append(f"expected at most {most} instructions an element, but got {per_element:.2f}")
        if any(re.search(r"\b(LDL|STL)\b", instruction) for instruction in loop[0]):
            faults.append("expected a loop without local memory, but got LDL or STL")
    print(f"{name} {pattern}: {text}")
    return faults


def main():
    arguments = sys.argv[1:]
    table = pathlib.Path(__file__).with_name("instruction_budgets.txt")
    if "--table" in arguments:
        at = arguments.index("--table")
        table = pathlib.Path(arguments[at + 1])
        del arguments[at:at + 2]
    cuobjdump, folders = arguments[0], [pathlib.Path(folder) for folder in arguments[1:]]
    for tool in (cuobjdump, "c++filt"):
        if shutil.which(tool) is None:
            skip(f"{tool} was not found")
    objects = {}
    failed = False
    for cells in rows_of(table):
        if cells[0] not in objects:
            path = next((folder / cells[0] for folder in folders if (folder / cells[0]).exists()), None)
            if path is None:
                skip(f"{cells[0]} was not built")
            objects[cells[0]] = Object(cuobjdump, path)
            if not objects[cells[0]].instructions:
                skip(f"{path} has no code for {ARCHITECTURE}")
        for fault in faults_of(cells, objects[cells[0]]):
            failed = True
            print(f"{cells[0]} {cells[1]}: {fault}; {cells[8]}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
