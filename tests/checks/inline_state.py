"""Fails on a variable that a header inside of libgantry defines: a test that links gantry_internal would have a copy of its own.
Declare it in the header, and define it in the source file.
"""

import re

from source_tree import LAYERS, code_files, read_lines, run_check

KINDS = r"(?:(?:static|inline|constinit|thread_local) )*"
TYPE = r"(?!constexpr\b|const\b|return\b|using\b)[\w:]+(?:<[^()]*>)?[&*]*"
INLINE = re.compile(rf"^\s*(?:static )?inline {KINDS}{TYPE} (\w+)(?:\{{| =|;)")
LOCAL = re.compile(rf"^\s+static {KINDS}(?!.*\*? const ){TYPE} (\w+)(?:\{{| =|;)")
MEMBER = re.compile(r"_;|static constinit [^{=]*;|static thread_local constinit [^{=]*;")  # declared in its class, defined elsewhere


def find_violations(root):
    found = []
    for path in code_files(root, LAYERS, {".hpp"}):
        for number, line in enumerate(read_lines(root / path), 1):
            match = INLINE.match(line) or (None if MEMBER.search(line) else LOCAL.match(line))
            if match:
                found.append(f"{path}:{number}: {match[1]} is defined in a header")
    return found


if __name__ == "__main__":
    run_check(__doc__, find_violations)
