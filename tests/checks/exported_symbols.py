"""Fails if libgantry.so exports a symbol that no public header declares, or hides one that a public header marks GANTRY_API.
It also lists declarations in public headers that lack the mark: a program that uses them does not link.
"""

import argparse
import pathlib
import re
import subprocess
import sys

TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL | re.MULTILINE)
CLASS = re.compile(r"^(template\s*<.*>\s*)?(?:requires\b.*\s)?(?:class|struct|union)\s+(GANTRY_API\s+)?([\w:]+)\s*(?:<.*>\s*)?(?:final\s*)?(?::(?!:).*)?$",
                   re.DOTALL)
NAMESPACE = re.compile(r"^(?:inline\s+)?namespace\s+([\w:]*)$")
FUNCTION = re.compile(r"(operator\s*(?:\(\)|[^\s\w(]+)|~?\b\w+)\s*\(")
OUT_OF_LINE = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|&|&&)\s*)*$")
INLINE_VARIABLE = re.compile(r"^(?:template\s*<[^=]*>\s*)?inline\b[^=(]*?(\w+)\s*=")
DECLARED_ERROR = re.compile(r"^GANTRY_DECLARE_ERROR\((\w+)\)$")
# Of a libstdc++ that is linked statically; cmake/gantry.map says why.
EXCEPTION_STATE = re.compile(r"__cxa_get_globals(?:_fast)?$|_ZN10__cxxabiv1\w+_handlerE$")
NO_NAMES = {"requires", "noexcept", "decltype", "sizeof", "alignas", "explicit", "__attribute__", "static_assert"}
OPERATORS = {"<<": "ls", ">>": "rs", "==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge", "<=>": "ss",
             "+": "pl", "-": "mi", "*": "ml", "/": "dv", "%": "rm", "&": "an", "|": "or", "^": "eo", "~": "co", "!": "nt"}

# Vtables, typeinfo, guards of static variables, thunks. The rest is as in the name of a function.
SPECIAL = re.compile(r"^_Z(?:T[VTIS]|GV|GR|TC|TW|TH|Th[n\d]+_|Tv[n\d]+_n?\d+_|Tch?[n\d_]*)?Z*N?[KVrRO]*")
OF_CLASS = re.compile(r"^_ZT[VTISC]")


class Headers:
    """What the public headers declare. A name is a tuple of identifiers: ("gantry", "comm", "gather")."""

    def __init__(self):
        self.functions = {}  # marked functions and variables → file; None if no symbol has to exist
        self.classes = {}  # marked classes → file; None if no symbol has to exist
        self.nested = set()  # classes inside of marked classes, defined in the header
        self.complaints = []

    def read(self, path, text):
        """Adds the declarations of one header."""
        text = TOKENS.sub(lambda token: '""' if token[0][0] in "\"'" else " ", text)
        scopes = [("namespace", ())]  # kind, name; of a class also whether it is marked
        start, parentheses, position = 0, 0, 0
        while position < len(text):
            character = text[position]
            parentheses += {"(": 1, ")": -1}.get(character, 0)
            if parentheses == 0 and character in "{};":
                statement = re.sub(r"\b(?:public|private|protected):", "", text[start:position]).strip()
                if character == "{" and not self.open_scope(path, statement, scopes):
                    position = end_of_block(text, position)
                    head = FUNCTION.split(without_template(statement))
                    if len(head) == 1 or "=" in head[0]:
                        position += 1  # the initializer of a variable: the statement goes on
                        continue
                elif character == "}":
                    scopes.pop()
                elif character == ";":
                    self.declare(path, statement, scopes[-1])
                start = position + 1
            position += 1

    def open_scope(self, path, statement, scopes):
        """Enters a namespace or a class. False for any other block."""
        kind, name, *_ = scopes[-1]
        if statement == 'extern ""':  # C's functions
            scopes.append(("namespace", ()))
            return True
        if match := NAMESPACE.match(statement):
            scopes.append(("namespace", name + tuple(match[1].split("::"))))
            return True
        match = CLASS.match(statement)
        if match is None or "(" in statement.split(":")[0]:
            return False
        name += tuple(match[3].split("::"))
        if kind in ("marked", "nested"):
            self.nested.add(name)
            scopes.append(("nested", name))
        elif match[2]:
            self.classes[name] = path
            scopes.append(("marked", name))
        else:
            scopes.append(("template" if match[1] else "class", name))
        return True

    def declare(self, path, statement, scope):
        """Looks at a declaration without a body."""
        kind, scope_name = scope
        if match := DECLARED_ERROR.match(statement):
            self.classes[scope_name + (match[1],)] = None
            return
        if kind == "namespace" and (match := INLINE_VARIABLE.match(statement)):
            self.functions[scope_name + (match[1],)] = None
            return
        names = [name[1].replace("operator", "").strip() for name in FUNCTION.finditer(statement) if name[1] not in NO_NAMES]
        is_function = names and OUT_OF_LINE.search(statement) and not re.match(r"(using|typedef|static_assert)\b", statement)
        if kind == "namespace" and not names and re.match(r"(GANTRY_API )?extern\b", statement):
            names, is_function = [re.split(r"\W+", statement)[-1]], True
        is_initialized = re.match(r"(?!.*\boperator\b)[^(]*=", statement)  # a member, by a call
        if not is_function or is_initialized:
            return
        where = f"{path}: {'::'.join(scope_name + (names[0],))}"
        if kind == "namespace" and "GANTRY_API" in statement:
            self.functions[scope_name + (OPERATORS.get(names[0], names[0]),)] = path
        elif kind == "namespace" and not re.match(r"template\b|(\[\[\w+\]\] )?(inline|constexpr)\b", statement):
            self.complaints.append(f"{where} is declared without GANTRY_API")
        elif kind == "class":
            self.complaints.append(f"{where}() is declared, but its class has no GANTRY_API")
        elif kind in ("marked", "nested") and re.match(r"(\[\[\w+\]\] )?friend\b", statement) \
                and "GANTRY_API" not in statement and scope_name[:-1] + (names[0],) not in self.functions:
            self.complaints.append(f"{where} is a friend without GANTRY_API: declare it before the class")

    def declares(self, name, is_class):
        """True if a symbol of this name is public; `is_class` if a class has the name."""
        if name in self.functions:
            return not is_class
        for length in range(2, len(name) + 1):
            if name[:length] in self.classes:
                inner = range(length + 1, len(name) + (1 if is_class else 0))
                return all(name[:end] in self.nested for end in inner)
        return False


def without_template(statement):
    """A declaration without `template <…>` in front."""
    if not statement.startswith("template"):
        return statement
    depth = 0
    for position, character in enumerate(statement):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == ">" and depth == 0:
            return statement[position + 1:]
    return statement


def end_of_block(text, opening):
    """Position of the brace that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text) - 1


def name_of(symbol):
    """(identifiers, whether they name a class) of a mangled C++ name; an operator at the end is its code, such as "ls"."""
    prefix = SPECIAL.match(symbol)
    if prefix is None:
        return (symbol,), False  # of a C function
    position, name = prefix.end(), []
    while match := re.compile(r"(B?)(\d+)").match(symbol, position):
        position = match.end() + int(match[2])
        if not match[1]:  # B: an ABI tag
            name.append(symbol[match.end():position])
    if symbol[position:position + 2] in OPERATORS.values():
        name.append(symbol[position:position + 2])
    is_class = OF_CLASS.match(symbol) is not None and not symbol.startswith(("_ZTIZ", "_ZTSZ", "_ZTVZ"))
    return tuple(name), is_class or re.match(r"C[1-5]|D[0-5]", symbol[position:]) is not None


def shown(name):
    """The text of a name, with "operator<<" for "ls"."""
    operator = next((text for text, code in OPERATORS.items() if code == name[-1]), None)
    return "::".join((*name[:-1], f"operator{operator}" if operator else name[-1]))


def exported(library, *options):
    """Names of the dynamic symbols that the library defines, in its order."""
    command = ["nm", "-D", "-p", "--defined-only", "--format=posix", *options, library]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    # "NAME TYPE VALUE SIZE", and a demangled name has spaces
    return [re.sub(r" [A-Za-z?](?: [0-9a-f]*)*$", "", line).split("@")[0] for line in lines]


def violations(library, include_dir):
    headers = Headers()
    paths = sorted(include_dir.rglob("*.hpp"))
    if not paths:
        sys.exit(f"{include_dir}: no header was found here")
    for path in paths:
        headers.read(path.relative_to(include_dir), path.read_text(encoding="utf-8"))
    found = list(headers.complaints)
    names = set()
    for symbol, text in zip(exported(library), exported(library, "-C")):
        if EXCEPTION_STATE.match(symbol):
            continue
        name, is_class = name_of(symbol)
        if not name or not name[0].startswith("gantry") or not headers.declares(name, is_class):
            found.append(f"{symbol}: {text} is exported, but no public header declares it")
        names |= {name[:length] for length in range(1, len(name) + 1)}
    for name, path in {**headers.functions, **headers.classes}.items():
        if path is not None and name not in names:
            found.append(f"{path}: {shown(name)} has GANTRY_API, but the library does not export it")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=pathlib.Path, help="libgantry.so")
    parser.add_argument("include_dir", type=pathlib.Path, help="folder of the public headers")
    options = parser.parse_args()
    found = violations(options.library, options.include_dir)
    for violation in found:
        print(violation)
    if found:
        sys.exit(f"{len(found)} violation(s)")


if __name__ == "__main__":
    main()
