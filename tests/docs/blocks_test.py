"""Proves that the tests of the documentation can fail, and that they run what they should."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from blocks import PageError, parse_page
from generated import fragments_source
from run_page import matches_output

HERE = pathlib.Path(__file__).parent


def page(*parts):
    return "\n".join(parts) + "\n"


class ParserTest(unittest.TestCase):
    def assert_refused(self, text, words):
        with self.assertRaises(PageError) as caught:
            parse_page("page.md", text)
        self.assertIn(words, str(caught.exception))

    def test_finds_blocks_and_their_markers(self):
        blocks = parse_page("page.md", page(
            "text", "```sh", "true", "```", "<!-- not run: needs a GPU -->", "", "```cpp", "int x;", "```",
            "<!-- before: cd a", "cd b -->", "<!-- needs: c -->", "```sh", "pwd", "```"))
        self.assertEqual([block.line for block in blocks], [3, 8, 14])
        self.assertEqual(blocks[0].markers, {})
        self.assertTrue(blocks[1].is_left_out)
        self.assertEqual(blocks[2].markers, {"before": "cd a\ncd b", "needs": "c"})

    def test_a_comment_above_text_is_no_marker(self):
        self.assertEqual(parse_page("page.md", page("<!-- anything -->", "text", "```sh", "true", "```"))[0].markers, {})

    def test_lines_of_a_shell_block(self):
        block = parse_page("page.md", page("<!-- not run 1, 3-4: GPUs -->", "```sh", "a", "b", "c", "d", "```"))[0]
        self.assertFalse(block.is_left_out)
        self.assertEqual(block.runnable_lines(), ["", "b", "", ""])

    def test_refuses_what_nobody_would_run(self):
        self.assert_refused(page("```", "x", "```"), "page.md:2: expected one of the languages")
        self.assert_refused(page("```python", "x", "```"), "but got 'python'")
        self.assert_refused(page("<!-- todo -->", "```sh", "x", "```"), "expected one of the markers")
        self.assert_refused(page("<!-- not run -->", "```sh", "x", "```"), "expected a text behind <!-- not run: -->")
        self.assert_refused(page("<!-- not run 2: x -->", "```sh", "x", "```"), "expected numbers of its own lines")
        self.assert_refused(page("<!-- not run 1: x -->", "```cpp", "x", "```"), "of a shell block only")
        self.assert_refused(page("<!-- needs: a -->", "<!-- needs: b -->", "```sh", "x", "```"), "expected the marker 'needs' once")
        self.assert_refused(page("<!-- output -->", "```sh", "x", "```"), "expected a text block")
        self.assert_refused(page("```cuda", "x", "```"), "expected a CUDA block to be a file or not run")
        self.assert_refused(page("```sh", "x"), "expected an end of this block")

    def test_refuses_code_that_readers_do_not_see(self):
        for language, marker in (("cpp", "only compiled: x"), ("cpp", "file: x"), ("cmake", "needs: x"), ("cuda", "file: x")):
            self.assert_refused(page("<!-- before: int a; -->", f"<!-- {marker} -->", f"```{language}", "a = 1;", "```"),
                                f"page.md:4: expected all code of a {language} block on the page")


class OutputTest(unittest.TestCase):
    def test_lines_come_in_order_and_dots_stand_for_anything(self):
        self.assertTrue(matches_output("a\nc …\n", "a\nb\nc 12\n"))
        self.assertTrue(matches_output("…\n", ""))
        self.assertFalse(matches_output("c\na\n", "a\nc\n"))
        self.assertFalse(matches_output("a.c\n", "abc\n"))
        self.assertFalse(matches_output("a\n", "ab\n"))


class FragmentsTest(unittest.TestCase):
    def test_includes_go_to_the_top_and_errors_name_the_page(self):
        blocks = parse_page("page.md", page("", "```cpp", "#include <span>", "int a = 2;", "```"))
        source = fragments_source(blocks)
        self.assertLess(source.index("#include <span>"), source.index("void block_3()"))
        self.assertIn('#line 3 "page.md"\n\nint a = 2;\n', source)
        self.assertIn('if (name == "block_3") return block_3(), 0;', source)


class RunTest(unittest.TestCase):
    """Pages without C++, which need no build."""

    def run_page(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "page.md").write_text(text, encoding="utf-8")
            (root / "bin").mkdir()
            (root / "bin" / "large").write_bytes(bytes(range(256)) * 1024)
            (root / "bin" / "small").write_bytes(b"#")
            result = subprocess.run(
                [sys.executable, "-B", HERE / "run_page.py", "page.md", "--source", root, "--build", root, "--work", root / "work", *arguments],
                capture_output=True, text=True, check=False)
            self.kept = sorted(path.name for path in (root / "work" / "home").rglob("*") if path.is_file())
            return result.returncode, result.stdout + result.stderr

    def assert_passes(self, text, words, *arguments):
        code, output = self.run_page(text, *arguments)
        self.assertEqual(code, 0, output)
        self.assertIn(words, output)

    def assert_fails(self, text, words, *arguments):
        code, output = self.run_page(text, *arguments)
        self.assertEqual(code, 1, output)
        self.assertIn(words, output)

    def test_counts(self):
        self.assert_passes(page("```sh", "true", "```", "<!-- not run: needs a GPU -->", "```sh", "false", "```", "```text", "x", "```"),
                           "page.md: 1 not run, 1 run, 1 text\n  1 × needs a GPU\n")

    def test_a_command_that_fails(self):
        self.assert_fails(page("", "```sh", "echo seen", "false", "true", "```"), "page.md:3: exit code 1\nseen")
        self.assert_fails(page("```sh", "false | true", "```"), "page.md:2: exit code 1")
        self.assert_fails(page("```sh", "gantry-no-such-program", "```"), "page.md:2: exit code 127")
        self.assert_fails(page("```sh", "sleep 600", "```"), "page.md:2: still runs after 0.5 s", "--timeout", "0.5")

    def test_blocks_share_a_folder_which_is_empty(self):
        self.assert_passes(page("```sh", "test -d build/auto", "test ! -e file", "touch file", "```", "```sh", "test -e file", "```"), "2 run")

    def test_blocks_share_what_is_exported(self):
        shown = page("```sh", "export A=$'1\\n2' PATH=/nowhere:$PATH; B=3", "cd build", "```", "```sh", "test \"$A\" = $'1\\n2'", "[[ $PATH = /nowhere:* ]]",
                     'test -z "${B-}"', "test -d build", "```")
        self.assert_passes(shown, "2 run")
        self.assert_fails(page("```sh", "A=1", "```", "```sh", 'test "$A" = 1', "```"), "page.md:5: exit code 1")

    def test_each_page_has_a_folder_for_sessions_of_mpirun(self):
        with tempfile.TemporaryDirectory() as kept:
            shown = page("```sh", 'test -d "$OMPI_MCA_orte_tmpdir_base"', f'echo "$OMPI_MCA_orte_tmpdir_base" >> {kept}/names', "```")
            self.assert_passes(shown, "1 run")
            self.assert_passes(shown, "1 run")
            names = pathlib.Path(kept, "names").read_text(encoding="utf-8").split()
        self.assertEqual(len(set(names)), 2)
        self.assertFalse(any(pathlib.Path(name).exists() for name in names))

    def test_a_page_asks_for_its_devices(self):
        os.environ["GANTRY_SIM_DEVICES"] = "4"
        self.addCleanup(os.environ.pop, "GANTRY_SIM_DEVICES")
        self.assert_passes(page("```sh", "test -z ${GANTRY_SIM_DEVICES-}", "```"), "1 run")

    def test_output(self):
        shown = ["```sh", "echo one; echo two", "```", "<!-- output -->", "```text"]
        self.assert_passes(page(*shown, "t…", "```"), "1 output, 1 run")
        self.assert_fails(page(*shown, "three", "```"), "page.md:6: expected the output that the page shows, but got\none\ntwo")
        self.assert_fails(page("<!-- before: echo one -->", "<!-- output -->", "```text", "two", "```"), "expected the output")

    def test_files(self):
        self.assert_passes(page("<!-- file: a/b.cpp -->", "```cpp", "int x;", "```", "```sh", "grep -q 'int x' a/b.cpp", "```"),
                           "1 run, 1 saved")

    def test_an_installation_shares_its_large_files_with_the_build(self):
        self.assert_passes(page("```sh", 'mkdir "$HOME/bin"', 'cp build/auto/bin/* "$HOME/bin"',
                                'tr "\\000" 1 < build/auto/bin/large > "$HOME/large"', "```",
                                "```sh", 'cd "$HOME/bin"; build=$OLDPWD/build/auto/bin', '[[ large -ef $build/large ]]',
                                '[[ ! small -ef $build/small ]]', '[[ ! ../large -ef $build/large ]]', "```"), "2 run")

    def test_an_installation_stays_only_where_the_page_fails(self):
        install = 'cp build/auto/bin/large "$HOME"'
        self.assert_passes(page("```sh", install, "```"), "1 run")
        self.assertEqual(self.kept, [])
        self.assert_fails(page("```sh", install, "```", "```sh", "false", "```"), "exit code 1")
        self.assertEqual(self.kept, ["large"])

    def test_conditions(self):
        self.assert_passes(page("<!-- needs: gantry-no-such-program -->", "```sh", "false", "```"),
                           "1 × gantry-no-such-program is not installed")
        self.assert_passes(page("<!-- needs: true, build/auto/lib/none.so -->", "```sh", "false", "```"),
                           "1 × build/auto/lib/none.so is not there")
        self.assert_fails(page("<!-- needs: true, build/auto/bin/large -->", "```sh", "false", "```"), "exit code 1")
        block = page("<!-- build: address -->", "```sh", "false", "```")
        self.assert_passes(block, "1 × needs a build with the sanitizer address")
        self.assert_fails(block, "exit code 1", "--sanitize", "address,undefined")
        block = page("<!-- build: none, address -->", "```sh", "false", "```")
        self.assert_fails(block, "exit code 1")
        self.assert_passes(block, "1 × needs a build with the sanitizer none or address", "--sanitize", "thread")

    def test_an_unknown_language(self):
        self.assert_fails(page("```", "x", "```"), "expected one of the languages")


if __name__ == "__main__":
    unittest.main()
