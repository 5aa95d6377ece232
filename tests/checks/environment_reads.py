"""Fails on a variable of the environment that is read past env::get(), or that is not listed in env::settings().

A program with more rights than its caller honours no variable: env::get() knows such programs. A variable that settings()
leaves out is not checked at initialisation, and `glaunch env` does not show it.
"""

import re

from source_tree import LAYERS, code_files, read_lines, run_check

DECLARED = re.compile(r"^extern const \w+Setting (k\w+);")
LISTED = re.compile(r"&(k\w+)")
CALL = re.compile(r"(?<!secure_)\bgetenv\s*\(")


def violations(root):
    found = []
    for path in code_files(root, ["include/gantry", *LAYERS, "compat", "launcher", "command_line", "tools"]):
        for number, line in enumerate(read_lines(root / path), 1):
            if CALL.search(line.split("//")[0]):
                found.append(f"{path}:{number}: {line.strip()}: use env::get()")
    return found + unlisted(root)


def unlisted(root):
    header, source = root / "core/env/settings.hpp", root / "core/env/settings.cpp"
    if not header.exists():
        return []
    listed = set(LISTED.findall(source.read_text()))
    return [
        f"core/env/settings.hpp:{number}: {match.group(1)} is not in settings()"
        for number, line in enumerate(read_lines(header), 1)
        if (match := DECLARED.match(line)) and match.group(1) not in listed
    ]


if __name__ == "__main__":
    run_check(__doc__, violations)
