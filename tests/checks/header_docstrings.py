"""The docstrings of a header's declarations outside of classes."""

import dataclasses
import re

from source_tree import code_files

CLASSES = ("class", "struct", "union")
KIND = re.compile(r"(class|struct|enum(?: class)?|union|concept|using|namespace)\b\s*(?:GANTRY_API\s+)?([\w:]+)?")
FUNCTION = re.compile(r"(operator\s*[^\s\w(]+|operator\(\)|operator [\w:]+|~?\b[\w:]+)\s*\(")
NOT_NAMES = {"requires", "noexcept", "sizeof", "decltype", "alignas", "explicit", "GANTRY_PTX"}
DETAIL = re.compile(r"namespace (?:\w+::)*detail\b.*\{$")
CODE = "@code"
END = "@endcode"


@dataclasses.dataclass
class Docstring:
    """A docstring and what it describes: a kind such as "class", "error" or "function", and a name."""

    line: int  # the number of its first line
    lines: list  # without the slashes
    kind: str
    name: str

    @property
    def versions(self):
        return [line.removeprefix("@since").strip() for line in self.lines if line.startswith("@since")]

    def examples(self):
        """(number of the first line of code, lines of code) of each example."""
        found, begin = [], None
        for number, line in enumerate(self.lines):
            text = line.strip()
            if text == CODE:
                begin = number + 1
            elif text == END and begin is not None:
                found.append((self.line + begin, self.lines[begin:number]))
                begin = None
            elif match := re.fullmatch(r"Example: `(.+)`", text):
                found.append((self.line + number, [match[1]]))
        return found


def behind(text, opening, closing):
    """The text behind the bracket that closes the first one."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == opening) - (char == closing and text[at - 1] != "-")
        if depth == 0 and char == closing:
            return text[at + 1:].strip()
    return text


def without_template(text):
    """A declaration without its template parameters and the constraint in parentheses behind them."""
    while text.startswith("template"):
        text = behind(text, "<", ">")
    return behind(text, "(", ")") if text.startswith("requires(") else text


def declared(lines):
    """The kind and the name of the declaration that begins with `lines`."""
    text = ""
    for line in lines:
        line = re.sub(r"\s*//.*", "", line).strip()
        text = f"{text} {line}".strip()
        if line.endswith((";", "{", "}", "\\")):
            break
    text = without_template(re.sub(r"\[\[.*?\]\]\s*", "", text))
    match = KIND.match(text)
    if match:
        return match[1].split()[0], match[2] or ""
    if match := re.match(r"GANTRY_DECLARE_ERROR\((\w+)", text):
        return "error", match[1]
    for match in FUNCTION.finditer(text):
        if match[1] not in NOT_NAMES and "=" not in text[:match.start()].replace("operator=", ""):
            return "function", match[1].replace(" ", "")
    return "variable", text


def docstrings(text, indent=""):
    """The docstrings of declarations that are indented by `indent`, "" for declarations outside of classes."""
    lines = text.splitlines()
    found, in_detail, at = [], False, 0
    slashes = f"{indent}///"
    while at < len(lines):
        line = lines[at]
        if DETAIL.match(line):
            in_detail = True
        elif in_detail and line.startswith("}"):
            in_detail = False
        if in_detail or not re.match(rf"{slashes}(?!<)", line):
            at += 1
            continue
        begin = at
        while at < len(lines) and lines[at].startswith(slashes):
            at += 1
        body = [row.removeprefix(slashes).removeprefix(" ") for row in lines[begin:at]]
        kind, name = declared(lines[at:at + 12])
        found.append(Docstring(begin + 1, body, kind, name))
    return found


def public_headers(root):
    """The headers of <gantry/gantry.hpp>, as paths relative to the root: without those that are not stable, and those
    that need the headers of another project."""
    umbrella = (root / "include/gantry/gantry.hpp").read_text(encoding="utf-8")
    return [path for path in code_files(root, ["include"], {".hpp"}) if f"<{path.relative_to('include')}>" in umbrella]
