"""The fenced blocks of a Markdown page, and the invisible markers in front of them.

A marker is an HTML comment above the fence, with nothing but other markers and empty lines between:

    <!-- not run: reason -->        the block cannot run here; the test counts it
    <!-- not run 1, 3-5: reason --> these lines of a shell block
    <!-- only compiled: reason -->  C++ that is not started
    <!-- before: commands -->       what the reader already has, such as an installation; shell and text blocks only; several lines
    <!-- file: name -->             the reader saves this block under that name
    <!-- output -->                 a text block that shows what the block above prints, or the commands of its own `before`;
                                    "…" stands for any text
    <!-- needs: program, dir/file --> runs only where those programs are installed, and those files are there
    <!-- build: thread, none -->    runs only in a build with one of these sanitizers, or with none
"""

import dataclasses
import re

LANGUAGES = ("cpp", "cuda", "cmake", "sh", "text")
SHELL_LANGUAGES = ("sh", "text")
MARKERS = ("not run", "only compiled", "before", "file", "output", "needs", "build")
FENCE = re.compile(r"^(\s*)(```+)\s*(.*?)\s*$")
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
MARKER = re.compile(r"([a-z ]+?)(?:\s+([\d,\s-]+))?(?::\s*(.*))?", re.DOTALL)


class PageError(Exception):
    """Something that a page must not contain, with its place."""


@dataclasses.dataclass
class Block:
    """One fenced block: `line` is the number of its first line of code."""

    page: str
    line: int
    language: str
    code: str
    markers: dict = dataclasses.field(default_factory=dict)
    left_out: frozenset = frozenset()  # numbers of the lines that "not run 1-3" names

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def name(self):
        return f"block_{self.line}"

    @property
    def is_program(self):
        return self.language == "cpp" and re.search(r"\bint main\(", self.code) is not None

    @property
    def is_left_out(self):
        return "not run" in self.markers and not self.left_out

    def runnable_lines(self):
        """The code without the lines that are not run; the numbers of the others stay."""
        lines = self.code.splitlines()
        return ["" if number in self.left_out else line for number, line in enumerate(lines, 1)]


def parse_ranges(text):
    """The numbers of "1, 3-5"."""
    numbers = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def add_marker(block, text):
    """Adds the marker `text` to `block`, or complains."""
    match = MARKER.fullmatch(text)
    name = match and match.group(1)
    if name not in MARKERS:
        raise PageError(f"{block.place}: expected one of the markers {', '.join(MARKERS)}, but got <!-- {text} -->")
    lines, value = match.group(2), match.group(3) or ""
    if name in block.markers:
        raise PageError(f"{block.place}: expected the marker '{name}' once")
    if not value and name != "output":
        raise PageError(f"{block.place}: expected a text behind <!-- {name}: -->")
    if lines:
        if name != "not run" or block.language != "sh":
            raise PageError(f"{block.place}: expected line numbers in 'not run' of a shell block only")
        block.left_out = parse_ranges(lines)
        if max(block.left_out) > len(block.code.splitlines()) or min(block.left_out) < 1:
            raise PageError(f"{block.place}: expected numbers of its own lines, but got {lines.strip()}")
    block.markers[name] = value


def check_block(block):
    """Complains about a block that is neither run nor marked, and about code that the page does not show."""
    if block.language not in LANGUAGES:
        raise PageError(f"{block.place}: expected one of the languages {', '.join(LANGUAGES)}, but got '{block.language}'")
    if block.language == "cuda" and not block.is_left_out and "file" not in block.markers:
        raise PageError(f"{block.place}: expected a CUDA block to be a file or not run")
    if "before" in block.markers and block.language not in SHELL_LANGUAGES:
        raise PageError(f"{block.place}: expected all code of a {block.language} block on the page, but got a hidden <!-- before: -->")
    if "output" in block.markers and block.language != "text":
        raise PageError(f"{block.place}: expected a text block behind <!-- output -->, but got {block.language}")


def parse_page(page, text):
    """All blocks of the page, in their order. Throws PageError."""
    blocks = []
    pending = []  # markers that wait for their block
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = FENCE.match(line)
        if fence and fence.group(3) is not None and line.lstrip().startswith("```"):
            indent, ticks, language = fence.groups()
            begin = at + 1
            at = begin
            while at < len(lines) and lines[at].strip() != ticks:
                at += 1
            if at == len(lines):
                raise PageError(f"{page}:{begin}: expected an end of this block, but got none")
            code = "".join(row.removeprefix(indent) + "\n" for row in lines[begin:at])
            block = Block(page, begin + 1, language, code)
            for marker in pending:
                add_marker(block, marker)
            check_block(block)
            blocks.append(block)
            pending = []
        elif line.lstrip().startswith("<!--"):
            comment = line
            while "-->" not in comment and at + 1 < len(lines):
                at += 1
                comment += "\n" + lines[at]
            pending += COMMENT.findall(comment)
        elif line.strip():
            pending = []
        at += 1
    return blocks
