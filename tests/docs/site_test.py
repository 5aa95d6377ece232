"""The site of the documentation: what becomes a link, a menu, a result of the search, and what is refused."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import build  # noqa: E402
import reference  # noqa: E402
import site_links  # noqa: E402
import tree  # noqa: E402

try:
    from pages import PageReader
    from search_index import script
except ImportError:
    PageReader = None

FILES = {
    "README.md": "# gantry\n\n[index](docs/index.md)\n",
    "LICENSE": "free\n",
    "examples/one.cpp": "int main() {}\n",
    "docs/index.md": "# Pages\n\n[readme](../README.md), [s](state.md)\n\n## How-to\n\n- [a](how-to/a.md#part)\n- [again](how-to/a.md)\n",
    "docs/state.md": "# State\n",
    "docs/how-to/a.md": "# Use `A`\n",
    "docs/how-to/b.md": "# Not in the index\n",
    "docs/doxygen/groups.dox": "/**\n@defgroup memory Memory\nText.\n*/\n",
    "docs/doxygen/mainpage.md": "no page\n",
}
NAMES = {"gantry::Stream": "api/s.html", "gantry::Stream::wait": "api/s.html#w", "gantry::sum": "api/t.html#s",
         "gantry::memory::stats": "api/m.html#st"}


class SiteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write(FILES)

    def write(self, files):
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")


class MenuTest(SiteTest):
    def test_the_index_orders_the_pages(self):
        sections = tree.read_menu(self.root)
        self.assertEqual([section.title for section in sections], ["Start", "How-to", "API reference"])
        self.assertEqual([entry.url for entry in sections[0].entries], ["index.html", "pages.html", "state.html"])
        self.assertEqual([entry.title for entry in sections[1].entries], ["Use A", "Not in the index"])
        self.assertEqual(sections[2].entries[-1], tree.Entry("Memory", "api/group__memory.html"))

    def test_links_of_the_menu_are_relative_and_the_page_is_marked(self):
        menu = tree.menu_html(tree.read_menu(self.root), "how-to/a.html")
        self.assertIn('<a href="a.html" aria-current="page">Use A</a>', menu)
        self.assertIn('<a href="../index.html">Overview</a>', menu)
        self.assertEqual(menu.count("<details open>"), 2)

    def test_a_page_without_a_title_is_refused(self):
        self.write({"docs/how-to/b.md": "text\n"})
        with self.assertRaisesRegex(tree.SiteError, "docs/how-to/b.md:1: expected a heading of level 1"):
            tree.read_menu(self.root)


@unittest.skipIf(PageReader is None, "markdown-it-py or Pygments is not installed")
class PageTest(SiteTest):
    def read(self, text, name="docs/how-to/a.md"):
        self.write({name: f"# Title\n\n{text}\n"})
        return PageReader(self.root, tree.page_files(self.root), NAMES).read(name)

    def test_links_lead_to_the_pages_of_the_site(self):
        page = self.read("[r](../../README.md) [b](b.md#x) [c](../../examples/one.cpp) [l](../../LICENSE) [e](https://a.b/c) [o](#p)")
        for link in ("../index.html", "b.html#x", "../files/examples/one.cpp.html", "../files/LICENSE.html", "https://a.b/c", "#p"):
            self.assertIn(f'href="{link}"', page.body)
        self.assertEqual(page.files, {"examples/one.cpp", "LICENSE"})

    def test_a_link_to_no_file_is_refused(self):
        with self.assertRaisesRegex(tree.SiteError, "docs/how-to/a.md:3: c.md: no such file"):
            self.read("[c](c.md)")

    def test_comments_are_left_out_and_other_html_is_refused(self):
        self.assertNotIn("not run", self.read("<!-- not run: a\nreason -->\n```sh\nls\n```").body)
        for text in ("<div>a</div>", "a <b>c</b>"):
            with self.assertRaisesRegex(tree.SiteError, "docs/how-to/a.md:3: expected Markdown"):
                self.read(text)

    def test_a_saved_file_shows_its_name(self):
        body = self.read("<!-- file: app/one.cpp -->\n```cpp\nint a;\n```\n\n```cpp\nint b;\n```").body
        self.assertEqual(body.count("<figcaption>"), 1)
        self.assertIn("<figcaption>app/one.cpp</figcaption>", body)

    def test_names_lead_to_the_reference_where_they_can_mean_nothing_else(self):
        body = self.read("`Stream` `gantry::Stream` `Stream::wait(event)` `sum()` `sum` `memory::stats` `Other::wait`").body
        for link in ('../api/s.html"><code>Stream</code>', '../api/s.html"><code>gantry::Stream</code>',
                     '../api/s.html#w"><code>Stream::wait(event)</code>', '../api/t.html#s"><code>sum()</code>',
                     '../api/m.html#st"><code>memory::stats</code>'):
            self.assertIn(link, body)
        self.assertIn(" <code>sum</code>", body)
        self.assertIn(" <code>Other::wait</code>", body)
        self.assertEqual(self.read("[`Stream`](b.md)").body.count("<a "), 1)

    def test_headings_have_the_anchors_of_a_git_host(self):
        page = self.read("## In a `Stream`, twice\n\n## Same\n\n## Same\n")
        self.assertEqual([anchor for _, anchor, _ in page.headings], ["title", "in-a-stream-twice", "same", "same-1"])

    def test_code_and_tables_are_escaped(self):
        self.assertIn("&lt;gantry/a.hpp&gt;", self.read("the header <gantry/a.hpp>").body)
        body = self.read("`a<b>`\n\n| a |\n|---|\n| `x<y>` |\n\n```text\n<script>\n```").body
        self.assertNotIn("<script>", body)
        self.assertIn("<code>x&lt;y&gt;</code>", body)
        self.assertIn('<div class="wide"><table>', body)

    def test_the_search_has_each_heading_with_its_words(self):
        text = script([self.read("first `code`\n\n## Part\n\nsecond")], {"gantry::sum": ("api/t.html#s", "function")})
        rows = json.loads(text.removeprefix("window.searchIndex = ").rstrip().rstrip(";"))
        self.assertEqual(rows, [["Title", "Title", "how-to/a.html", "first code"], ["Part", "Title", "how-to/a.html#part", "second"],
                                ["gantry::sum", "function", "api/t.html#s", ""]])


class LinkTest(SiteTest):
    def complaints(self, **pages):
        for name, text in pages.items():
            self.write({f"site/{name}.html": text})
        return site_links.violations(self.root / "site")[0]

    def test_links_that_lead_somewhere_pass(self):
        self.assertEqual(self.complaints(a='<p id="x"><a href="b.html#y">b</a><a href="#x">x</a><a href="https://a.b">w</a>',
                                         b='<a name="y"></a><img src="data:,"><a href="a.html?q#x">a</a>'), [])

    def test_lost_files_and_anchors_are_found(self):
        self.assertEqual(self.complaints(a='<a href="c.html">c</a>\n<a href="#z">z</a><img src="p.png">'),
                         ["a.html:1: c.html: no such file", "a.html:2: #z: no such anchor", "a.html:2: p.png: no such file"])

    def test_a_page_that_needs_the_network_is_found(self):
        self.write({"site/s.css": "a { background: url(https://a.b/c.png) } b { background: url('d.png') }"})
        self.assertEqual(self.complaints(a='<script src="https://a.b/c.js"></script><link href="//a.b/c.css" rel="stylesheet">'),
                         ["a.html:1: https://a.b/c.js: loaded from the network", "a.html:1: //a.b/c.css: loaded from the network",
                          "s.css:1: https://a.b/c.png: loaded from the network", "s.css:1: d.png: no such file"])

    def test_an_empty_site_is_found(self):
        (self.root / "site").mkdir()
        self.assertEqual(len(self.complaints()), 1)


class ReferenceTest(SiteTest):
    def test_links_to_members_without_a_description_lead_to_the_class(self):
        self.write({"r/a.html": '<a href="#n">N</a> &#124;\n<a href="#o">O</a> &#124;\n<p id="o"><a href="b.html#x">x</a><a href="b.html#y">y</a>',
                    "r/b.html": '<p id="x">'})
        folder = self.root / "r"
        reference.mend_links(folder, lambda path: site_links.PageLinks(path.read_text(encoding="utf-8")).anchors)
        self.assertEqual((folder / "a.html").read_text(encoding="utf-8"),
                         '<a href="#o">O</a> &#124;\n<p id="o"><a href="b.html#x">x</a><a href="b.html">y</a>')
        self.assertEqual(site_links.violations(folder)[0], [])

    def test_the_settings_have_the_version_of_the_project(self):
        text = reference.settings(ROOT, pathlib.Path("/out"))
        self.assertIn(f"PROJECT_NUMBER         = {reference.project_of(ROOT)[0]}\n", text)
        self.assertNotIn("@PROJECT", text)


class BuildTest(SiteTest):
    def test_a_folder_with_other_files_is_left_alone(self):
        missing, build.missing_tools = build.missing_tools, lambda: []
        self.addCleanup(setattr, build, "missing_tools", missing)
        self.addCleanup(setattr, sys, "argv", sys.argv)
        sys.argv = ["build.py", str(self.root), str(self.root / "docs")]
        with self.assertRaisesRegex(SystemExit, "expected an empty folder or an earlier site"):
            build.main()
        self.assertTrue((self.root / "docs/index.md").exists())


class PicturesTest(unittest.TestCase):
    def test_drawings_have_a_dark_variant(self):
        drawings = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
        self.assertTrue(drawings)
        for drawing in drawings:
            text = drawing.read_text(encoding="utf-8")
            style, _, body = text.partition("</style>")
            self.assertRegex(style, r"@media \(prefers-color-scheme: ?dark\) ?\{[^}]*\.page ?\{", drawing.name)
            self.assertIn('class="page"', body, drawing.name)
            self.assertNotRegex(body, r'(fill|stroke)="#', f"{drawing.name}: a colour that no style changes")


if __name__ == "__main__":
    unittest.main()
