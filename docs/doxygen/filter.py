#!/usr/bin/env python3
"""Prints a public header as doxygen reads it, with the conventions of the headers made explicit.

Usage: filter.py HEADER

- The names of include/gantry/<layer> belong to the group <layer>.
- A docstring above `namespace gantry {` describes the functions of the header, which are a subgroup. Its first sentence
  is the title.
- A function without a docstring shares the docstring of the function directly above, if it is an overload of it, or its
  variant `name_out` or `name_`. `name_out` elsewhere in the header has the docstring of `name`.
- Members below a section comment `// Title (header.hpp).` share a docstring that refers to that header, or to several:
  `// Title (one.hpp), title (two.hpp).`
- A line that includes a list of driver calls (Note [Driver calls]) becomes the members that its rows declare.
- Defaulted and deleted members without a docstring are left out, and so are friends that are declared elsewhere.
- An example and a version belong to the declaration below them: a shared docstring has neither.
- "Throws:" and the other labels of docstrings begin a paragraph.

Lines keep their numbers: a warning names the line of the header.
"""
import pathlib
import re
import sys

NOT_NAMES = {"requires", "noexcept", "decltype", "sizeof", "alignas", "explicit"}
NAME = re.compile(r"(operator\s*[^\s\w(]+|operator\(\)|operator [\w:]+|~?\b\w+)\s*\(")
SCOPE = re.compile(r"(template <.*> )?(requires .* )?(inline )?(class|struct|union|enum|namespace)\b[^;()]*\{$")
SECTION = re.compile(r"// [^()]+ \(\w+\.hpp\)(?:, [^()]+ \(\w+\.hpp\))*\.$")
HEADER = re.compile(r"\((\w+)\.hpp\)")
OPENS_NAMESPACE = re.compile(r"namespace gantry(::\w+)* \{$")
CLOSES_NAMESPACE = re.compile(r"\}  // namespace gantry(::\w+)*$")
MEMBERS_OF_MACRO = re.compile(r"GANTRY_\w+\(GANTRY_\w+\)$")
LABEL = re.compile(r"(?<=[.;)] )(Shapes|DTypes|Device/stream|Aliasing|Thread safety|Throws): |"
                   r"(?<=/// )(Shapes|DTypes|Device/stream|Aliasing|Thread safety|Throws|Example): ")
ROWS = re.compile(r"#include <(gantry/extend/driver/\w+_calls\.inc)>$")
ROW = re.compile(r"((?:^///.*\n)+)GANTRY_DRIVER_(VALUE|CALL|OWNING_CALL)\(([^;]*?)\)$", re.MULTILINE)
SENTENCE_END = re.compile(r"\.(\s+|$)")
LEFT_OUT = re.compile(r"\) ?(const|noexcept|&|&&| )*= (default|delete);$|^friend [^{}]*;$")


def code_of(line):
    """`line` without its comment and the contents of literals."""
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    line = re.sub(r"(?<!\w)'(\\.|[^'\\])'", "0", line)
    return re.sub(r"\s*//.*", "", line).strip()


def declared_name(code):
    """Name of the function that `code` declares; None if it declares none."""
    names = [match[1].replace(" ", "") for match in NAME.finditer(code)]
    return next((name for name in names if name not in NOT_NAMES), None)


def split_row(text):
    """The arguments of a row's macro."""
    parts, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "(<") - (char in ")>")
        if char == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()]


def members_of(rows):
    """The text of a list of driver calls as members, with their docstrings, in one line."""
    members = []
    for doc, kind, text in ROW.findall(rows):
        what = " ".join(line.removeprefix("///").strip() for line in doc.splitlines())
        parts = split_row(" ".join(text.split()))
        result = f"[[nodiscard]] virtual {parts.pop(0)}" if kind == "VALUE" else "virtual void"
        name, parameters, _, *qualifiers = parts
        members.append(f"/** {what} */ {' '.join([result, name + parameters, *qualifiers])} = 0;")
    return " ".join(members)


def text_to_share(lines):
    """The text of a docstring without its examples and its version."""
    kept, in_example = [], False
    for line in lines:
        if line == "@code":
            in_example = True
        if not in_example and not line.startswith(("@since", "Example: ")):
            kept.append(line)
        if line == "@endcode":
            in_example = False
    return " ".join(kept).strip()


def is_complete(code):
    """True if `code` is a whole declaration, with its body if it has one."""
    return all(code.count(a) == code.count(b) for a, b in ("()", "{}", "[]")) and code.endswith((";", "}"))


class Filter:
    """The lines of one header, changed in place."""

    def __init__(self, lines, layer, stem):
        self.lines = lines
        self.layer = layer
        self.group = layer
        self.stem = stem
        self.docstring = []  # numbers of its lines, above the declaration that is read
        self.shared = None  # (name, text) of the declaration above
        self.texts = {}  # the docstring of each name
        self.section = None  # text for the members of the section

    def name_group(self):
        """Makes the docstring above the namespace the docstring of a subgroup."""
        self.group = f"{self.layer}_{self.stem}"
        title = ""
        for i in self.docstring:
            text = self.lines[i].removeprefix("///").strip()
            end = SENTENCE_END.search(text)
            title = f"{title} {text[:end.start()] if end else text}".strip()
            self.lines[i] = f"/// {text[end.end():]}" if end else "///"
            if end:
                break
        title = re.sub(r"([,{}])", r"\\\1", title)
        self.lines[self.docstring[0]] = f"/// @subgroup{{{self.group},{title},{self.layer}}} " + self.lines[self.docstring[0]][4:]

    def share(self, first, last, code):
        """Gives a declaration on the lines first…last the docstring that it shares with others."""
        name = declared_name(code)
        trailing = re.search(r"///<\s*(.*)", self.lines[last])
        if self.docstring or trailing:
            texts = [self.lines[i].strip().removeprefix("///").strip() for i in self.docstring]
            self.shared = (name, text_to_share(texts) if texts else trailing[1])
            self.texts[name] = self.shared[1]
        elif LEFT_OUT.search(code):
            for i in range(first, last + 1):
                self.lines[i] = ""
        elif self.shared and name and name in (self.shared[0], f"{self.shared[0]}_out", f"{self.shared[0]}_"):
            self.lines[first] = f"/** {self.shared[1]} */ {self.lines[first].strip()}"
        elif self.section:
            self.lines[first] = f"/** {self.section} */ {self.lines[first].strip()}"
        elif name and name.endswith("_out") and (text := self.texts.get(name.removesuffix("_out"))):
            self.lines[first] = f"/** {text} */ {self.lines[first].strip()}"
        else:
            self.shared = None

    def run(self):
        first, code = None, ""  # the declaration that is read
        is_macro = False
        for i, line in enumerate(self.lines):
            text = line.strip()
            if is_macro or text.startswith("#"):
                is_macro = text.endswith("\\")
                self.docstring, self.shared = [], None
                continue
            if self.section and MEMBERS_OF_MACRO.match(text):
                self.lines[i] = f"/** @{{ */ /** {self.section} */ {text} /** @}} */"
                continue
            if first is None:
                if text.startswith("///"):
                    self.docstring.append(i)
                    continue
                if OPENS_NAMESPACE.match(text):
                    if self.docstring:
                        self.name_group()
                    self.lines[i] += f" /** @addtogroup {self.group} */ /** @{{ */"
                elif CLOSES_NAMESPACE.match(line):
                    self.lines[i] = "/** @} */ " + line
                if SECTION.match(text):
                    headers = " or ".join(f"@ref tensor_{name}" for name in HEADER.findall(text))
                    self.section = (f"As the function of this name in {headers}, with the tensor as first "
                                    "operand. Members `name_` write the result to the tensor.")
                if not code_of(text) or text.startswith("}"):
                    if not text.startswith("//"):
                        self.docstring, self.shared = [], None
                    if not text:
                        self.section = None
                    continue
                if re.fullmatch(r"(public|private|protected):", text):
                    self.docstring, self.shared, self.section = [], None, None
                    continue
                first = i
            code = f"{code} {code_of(text)}".strip()
            if SCOPE.match(code):
                first, code, self.docstring, self.shared = None, "", [], None
            elif is_complete(code):
                self.share(first, i, code)
                first, code, self.docstring = None, "", []


def main():
    path = pathlib.Path(sys.argv[1])
    lines = path.read_text(encoding="utf-8").splitlines()
    include = next((folder for folder in path.parents if folder.name == "include"), path.parent)
    lines = [members_of((include / match[1]).read_text(encoding="utf-8")) if (match := ROWS.match(line)) else line
             for line in lines]
    if path.suffix == ".hpp":
        Filter(lines, path.parent.name, path.stem).run()
    print("\n".join(LABEL.sub(lambda match: f"<p><b>{match[0].strip()}</b> ", line) for line in lines))


if __name__ == "__main__":
    main()
