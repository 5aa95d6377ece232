"""Fails on a public class that the tests of moved-from objects do not know, and on a public member of a movable class
that they do not call. Structs without a private part are values: what they consist of is tested.
"""

import re

from source_tree import code_files, run_check

TESTS = "tests/integration"
# Tests of headers that need the headers of the CUDA toolkit.
TOOLKIT_TESTS = "tests/memory"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CLASS = re.compile(r"^(template\s*<[^\n]*\n)?(class|struct)\s+(?:GANTRY_API\s+)?(\w+)\s*(?:final\s*)?(?::[^{;]*)?\{", re.MULTILINE)
PRIVATE = re.compile(r"^ (?:private|protected):", re.MULTILINE)
DATA_MEMBER = re.compile(r"\b(\w+_)\s*(?:=[^;]*|\{[^;]*\})?;")
TESTED = re.compile(r"\bMovable(?:<(?:\w+::)*(\w+)>\s*(?=[:{]|::calls)|(Error)\b(?= \{))")
MEMBER = re.compile(r"(?<![\w:.>~#])([a-z]\w*)\s*\(")
# Words that a parenthesis follows in a declaration, and what is no member function.
NO_MEMBERS = {"requires", "noexcept", "sizeof", "decltype", "alignas", "operator", "f", "return", "if", "static_cast"}


def class_body(text, opening):
    """The text between the brace at `opening` and the one that closes it."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1:position]
    return text[opening + 1:]


def without_inner_blocks(body):
    """The declarations of a class: bodies of functions and nested types are left out."""
    kept, depth = [], 0
    for character in body:
        depth += {"{": 1}.get(character, 0)
        if depth == 0:
            kept.append(character)
        depth -= {"}": 1}.get(character, 0)
    return "".join(kept)


def without_parameters(declarations):
    """Declarations with empty parameter lists, so that default arguments are not taken for members."""
    kept, depth = [], 0
    for character in declarations:
        depth -= {")": 1}.get(character, 0)
        if depth == 0:
            kept.append(character)
        depth += {"(": 1}.get(character, 0)
    return "".join(kept)


def public_members(name, body):
    """Names of the public, non-static member functions of a class."""
    members = set()
    for generated in re.findall(r"\bf\((\w+)\)", body):  # Tensor's lists of operations
        members |= {generated, f"{generated}_"}
    body = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", body, flags=re.MULTILINE)
    public, *private = PRIVATE.split(without_inner_blocks(body), maxsplit=1)
    data = set(DATA_MEMBER.findall("".join(private)))
    public = re.sub(r"\bfriend\b[^;]*;?|\bstatic\b(?!_cast)[^;]*;|\busing\b[^;]*;", "", without_parameters(public))
    for member in MEMBER.findall(public):
        if member != name and member not in NO_MEMBERS | data:
            members.add(member)
    return members


def public_classes(root):
    """(path, name, names of members) of each class with a private part; templates are left out."""
    for path in code_files(root, ["include"], {".hpp"}):
        text = COMMENT.sub("", (root / path).read_text(encoding="utf-8"))
        for match in CLASS.finditer(text):
            template, keyword, name = match.groups()
            body = class_body(text, match.end() - 1)
            if template is None and (keyword == "class" or PRIVATE.search(body)):
                yield path, name, public_members(name, body)


def known_types(root):
    """Listed types; for movable ones, the names of the members that are called."""
    movable, listed = {}, set()
    for path in code_files(root, [TESTS, TOOLKIT_TESTS], {".hpp", ".cpp"}):
        text = COMMENT.sub("", (root / path).read_text(encoding="utf-8"))
        parts = TESTED.split(text)
        for name, error, part in zip(parts[1::3], parts[2::3], parts[3::3]):
            calls = set(re.findall(r"\b(?:REFUSES|ANSWERS)\((\w+),", part))
            for operation in re.findall(r"\bTENSOR_(?:UNARY|BINARY)\((\w+)\)", part):
                calls |= {operation, f"{operation}_"}
            movable[name or error] = movable.get(name or error, set()) | calls
        names = re.findall(r"\b(?:NOT_MOVABLE|PLAIN_VALUE|BASE_WITHOUT_DATA|BASE_OF_FACETS)\(([\w:]+)(?:, \d+)?\)", text)
        listed |= {name.split("::")[-1] for name in names}
    return movable, listed


def violations(root):
    movable, listed = known_types(root)
    found = []
    for path, name, members in public_classes(root):
        if name not in movable and name not in listed:
            found.append(f"{path}: class {name} is neither in {TESTS}/moved_from_test.cpp nor in movable_types.cpp")
        for member in sorted(members - movable.get(name, members)):
            found.append(f"{path}: {name}::{member} is not called by {TESTS}/moved_from_test.cpp")
    return found


if __name__ == "__main__":
    run_check(__doc__, violations)
