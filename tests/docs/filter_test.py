"""docs/doxygen/filter.py: which declarations share a docstring, and which do not."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "doxygen"))
from filter import Filter, members_of  # noqa: E402


def filtered(text):
    """The lines of a header include/gantry/tensor/sample.hpp as doxygen reads them."""
    lines = text.splitlines()
    Filter(lines, "tensor", "sample").run()
    return lines


class FilterTest(unittest.TestCase):
    def test_overloads_and_variants_share_the_docstring_above(self):
        lines = filtered("/// Sum of a\n/// and b.\nTensor add(A a,\n           B b);\nTensor& add_out(T& out, A a, B b);\n"
                         "template <class T>\nTensor add(T a) {\n  return add(a, 0);\n}\n")
        self.assertEqual(lines[4], "/** Sum of a and b. */ Tensor& add_out(T& out, A a, B b);")
        self.assertEqual(lines[5], "/** Sum of a and b. */ template <class T>")

    def test_other_names_share_nothing(self):
        text = "/// Makes it.\nvoid create();\nvoid destroy();\nvoid create(int);\n"
        self.assertEqual(filtered(text), text.splitlines())

    def test_a_blank_line_ends_sharing(self):
        text = "/// Makes it.\nvoid create();\n\nvoid create(int);\n"
        self.assertEqual(filtered(text), text.splitlines())

    def test_an_out_variant_finds_the_docstring_of_its_name(self):
        text = "/// Smaller.\nT min(A a);\n/// Larger.\nT max(A a);\nT& min_out(T& out, A a);\nT& sum_out(T& out, A a);\n"
        lines = filtered(text)
        self.assertEqual(lines[4], "/** Smaller. */ T& min_out(T& out, A a);")
        self.assertEqual(lines[5], "T& sum_out(T& out, A a);")

    def test_members_of_a_section_refer_to_its_header(self):
        lines = filtered("class T {\n  // Reductions (reductions.hpp).\n  T sum() const;\n  /// Own.\n  T mean() const;\n\n  T other();\n};\n")
        self.assertIn("@ref tensor_reductions", lines[2])
        self.assertEqual(lines[4], "  T mean() const;")
        self.assertEqual(lines[6], "  T other();")
        lines = filtered("class T {\n  // Sorting (sorting.hpp), counts (binning.hpp).\n  T sort() const;\n};\n")
        self.assertIn("@ref tensor_sorting or @ref tensor_binning", lines[2])

    def test_names_belong_to_the_group_of_their_folder(self):
        lines = filtered("namespace gantry {\nint a;\n}  // namespace gantry\n")
        self.assertEqual(lines, ["namespace gantry { /** @addtogroup tensor */ /** @{ */", "int a;", "/** @} */ }  // namespace gantry"])

    def test_a_docstring_of_the_namespace_makes_a_subgroup(self):
        lines = filtered("/// Samples.\n///\n/// More.\nnamespace gantry {\n")
        self.assertEqual(lines, ["/// @subgroup{tensor_sample,Samples,tensor} ", "///", "/// More.",
                                 "namespace gantry { /** @addtogroup tensor_sample */ /** @{ */"])

    def test_the_title_of_a_subgroup_is_its_first_sentence(self):
        lines = filtered("/// Samples of a,\n/// and b. More of\n/// them.\nnamespace gantry {\n")
        self.assertEqual(lines[:3], ["/// @subgroup{tensor_sample,Samples of a\\, and b,tensor} ", "/// More of", "/// them."])
        self.assertEqual(filtered("/// Samples. More.\nnamespace gantry {\n")[0], "/// @subgroup{tensor_sample,Samples,tensor} More.")

    def test_a_shared_docstring_has_neither_examples_nor_a_version(self):
        lines = filtered("/// Zeros.\n/// @code\n/// zeros(1);\n/// @endcode\n/// Example: `zeros(2);`\n/// @since 0.1\n"
                         "T zeros(int n);\nT zeros(float n);\nT& zeros_out(T& out);\n")
        self.assertEqual(lines[5], "/// @since 0.1")
        self.assertEqual(lines[7:], ["/** Zeros. */ T zeros(float n);", "/** Zeros. */ T& zeros_out(T& out);"])

    def test_defaulted_and_deleted_members_are_left_out(self):
        lines = filtered("class A {\n  A(const A&) = delete;\n  A& operator=(A&&) noexcept = default;\n  /// None.\n  A() = default;\n};\n")
        self.assertEqual(lines[1:3], ["", ""])
        self.assertEqual(lines[4], "  A() = default;")

    def test_friends_that_are_declared_elsewhere_are_left_out(self):
        lines = filtered("class A {\n  friend class B;\n  friend int size_of(\n      const A& a);\n  friend bool operator==(A, A) { return true; }\n};\n")
        self.assertEqual(lines[1:4], ["", "", ""])
        self.assertIn("operator==", lines[4])

    def test_rows_of_driver_calls_become_members(self):
        rows = ("// A list.\n\n/// Waits.\n/// Long.\nGANTRY_DRIVER_CALL(wait, (Stream stream, void (*run)(void*)),\n"
                "                   (stream, run), noexcept)\n\n/// Asks.\nGANTRY_DRIVER_VALUE(std::pair<int, bool>, query, (), ())\n")
        self.assertEqual(members_of(rows), "/** Waits. Long. */ virtual void wait(Stream stream, void (*run)(void*)) noexcept = 0; "
                         "/** Asks. */ [[nodiscard]] virtual std::pair<int, bool> query() = 0;")

    def test_lines_keep_their_numbers(self):
        for header in sorted((ROOT / "include" / "gantry").rglob("*.hpp")):
            text = header.read_text(encoding="utf-8")
            self.assertEqual(len(filtered(text)), len(text.splitlines()), header)


if __name__ == "__main__":
    unittest.main()
