"""Proves that public_docstrings.py can fail, and which declaration a docstring describes."""

import pathlib
import tempfile
import unittest

from header_docstrings import docstrings
from public_docstrings import find_violations

CHANGELOG = "## [Unreleased]\n\nWhat becomes 0.3.0.\n\n## [0.2.0] - 2026-11-24\n"
POOL = "include/gantry/memory/pool.hpp"
GOOD = "namespace gantry {\n/// A pool.\n/// Example: `Pool pool;`\n/// @since 0.3\nclass Pool {};\n}\n"
EXAMPLE = "/// Example: `Pool pool;`\n"
VERSION = "/// @since 0.3\n"


def violations(header, path=POOL):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        umbrella = "#pragma once\n#include <gantry/memory/pool.hpp>\n#include <gantry/memory/history.hpp>\n"
        for name, text in {"CHANGELOG.md": CHANGELOG, "include/gantry/gantry.hpp": umbrella, path: header}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return "\n".join(find_violations(root))


class PublicDocstringsTest(unittest.TestCase):
    def passes(self, header, path=POOL):
        self.assertEqual(violations(header, path), "")

    def fails(self, header, text, path=POOL):
        self.assertIn(text, violations(header, path))

    def test_a_class_has_one_known_version_in_its_last_line(self):
        self.passes(GOOD)
        self.fails(GOOD.replace(VERSION, ""), "pool.hpp:2: class Pool: expected a version, such as '@since 0.3'")
        self.fails(GOOD.replace("0.3", "0.4"), "class Pool: expected a version of CHANGELOG.md, but got 0.4")
        self.fails(GOOD.replace(VERSION, VERSION + "/// @since 0.2\n"), "class Pool: expected one version, in the last line")
        self.fails(GOOD.replace(VERSION, VERSION + "/// It is large.\n"), "class Pool: expected one version, in the last line")
        self.passes(GOOD.replace(VERSION, ""), "include/gantry/extend/pool.hpp")

    def test_other_types_have_versions_too(self):
        for kind in ("struct Kind {};", "enum class Kind {};", "union Kind {};", "template <class T>\nconcept Kind = true;",
                     "GANTRY_DECLARE_ERROR(Kind);"):
            self.fails(f"/// A kind.\n{kind}\n", "Kind: expected a version")
            self.passes(f"/// A kind.\n/// @since 0.1\n{kind}\n")
        self.passes("namespace gantry::detail {\n/// A part.\nstruct Part {};\n}  // namespace gantry::detail\n")

    def test_a_function_or_its_group_has_a_version(self):
        function = "/// Makes one.\ntemplate <class T>\n[[nodiscard]] GANTRY_API Pool make(T a = {});\n"
        self.fails(function, "function make: expected a version")
        self.passes("/// Pools.\n/// @since 0.2\nnamespace gantry {\n" + function + "}\n")
        self.fails("/// Pools.\nnamespace gantry {\n" + function + "}\n", "namespace gantry: expected a version")

    def test_classes_and_listed_functions_have_examples(self):
        self.fails(GOOD.replace(EXAMPLE, ""), "pool.hpp:2: class Pool: expected an example")
        self.passes(GOOD.replace(EXAMPLE, ""), "include/gantry/memory/not_in_the_umbrella.hpp")
        history = "/// Records.\n/// @since 0.1\nvoid record_history();\n"
        path = "include/gantry/memory/history.hpp"
        self.fails(history, "history.hpp: function record_history: expected an example", path)
        self.passes(history.replace("/// @since", "/// Example: `record_history();`\n/// @since"), path)

    def test_examples_are_short_and_end(self):
        code = "".join(f"/// int a{number};\n" for number in range(6))
        self.passes(GOOD.replace(EXAMPLE, f"/// @code\n{code}/// @endcode\n"))
        self.fails(GOOD.replace(EXAMPLE, f"/// @code\n{code}/// f();\n/// @endcode\n"),
                   "pool.hpp:4: expected at most 6 lines of an example, but got 7")
        self.fails(GOOD.replace(EXAMPLE, "/// @code\n/// Pool pool;\n"), "expected an @endcode for each @code")


class HeaderDocstringsTest(unittest.TestCase):
    def kinds(self, text, indent=""):
        return [(docstring.kind, docstring.name) for docstring in docstrings(text, indent)]

    def test_the_declaration_below_is_described(self):
        self.assertEqual(self.kinds("/// A.\nclass GANTRY_API A final : public B {\n"), [("class", "A")])
        self.assertEqual(self.kinds("/// A.\nusing A = int (*)(int);\n"), [("using", "A")])
        self.assertEqual(self.kinds("/// A.\ninline constexpr int kA = f(1);\n"), [("variable", "inline constexpr int kA = f(1);")])
        self.assertEqual(self.kinds("/// A.\nGANTRY_API std::vector<int>\na(std::span<const int> b, int c = d());\n"), [("function", "a")])
        self.assertEqual(self.kinds("/// A.\ntemplate <class T>\nrequires(f(1) && g<T>) std::optional<T> a(T b);\n"), [("function", "a")])
        self.assertEqual(self.kinds("/// A.\nbool operator==(A a, A b);\n"), [("function", "operator==")])

    def test_members_are_found_by_their_indent(self):
        text = "/// A.\nclass A {\n  /// B.\n  int b() const;\n  int c;  ///< C.\n};\n"
        self.assertEqual(self.kinds(text), [("class", "A")])
        self.assertEqual(self.kinds(text, "  "), [("function", "b")])

    def test_examples_have_the_numbers_of_their_lines(self):
        docstring = docstrings("\n/// A.\n/// @code\n/// a();\n///   b();\n/// @endcode\n/// Example: `c();`\nint a();\n")[0]
        self.assertEqual(docstring.examples(), [(4, ["a();", "  b();"]), (7, ["c();"])])


if __name__ == "__main__":
    unittest.main()
