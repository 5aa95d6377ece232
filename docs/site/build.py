#!/usr/bin/env python3
"""Builds the site of the documentation: the pages of docs/ and the API reference, with one menu and one search.

Usage: build.py ROOT SITE

Fails on a warning of doxygen, on a page that is no plain Markdown, and on a link that leads nowhere. SITE is made anew.
Exit code 77 without doxygen 1.9, markdown-it-py or Pygments.
"""
import html
import pathlib
import shutil
import sys
import tempfile

import reference
import site_links
from tree import AS_FILES, SiteError, menu_html, page_files, read_menu, relative, url_of

MISSING = 77
OWN_FILES = ("site.css", "site.js")
MARK = ".gantry-site"  # a folder without it is not ours to remove
# Files of doxygen that no page needs without its menu and search.
LEFT_OVER = ("[bdfnst]*_*.png", "bdwn.png", "doc.png", "folder*.png", "splitbar.png", "*.svg", "menu*.js", "tabs.css")


class Site:
    """The site that is built from the repository `root` into the folder `output`."""

    def __init__(self, root, output):
        self.root = root
        self.output = output
        self.menu = read_menu(root)
        self.version, _ = reference.project_of(root)

    def write(self, url, text):
        path = self.output / url
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def build_reference(self, doxygen, work):
        """Writes the API reference; returns its names. Throws SiteError with doxygen's warnings."""
        from layout import reference_frame
        header, footer = reference_frame(self.version, menu_html(self.menu, "", "$relpath^../"))
        text = reference.framed(reference.settings(self.root, work), work, header, footer)
        code, warnings = reference.run(doxygen, text)
        if code != 0 or warnings:
            raise SiteError(warnings or f"doxygen: exit code {code}")
        names = reference.read_names(work / "names.xml")
        shutil.copytree(work / "html", self.output / "api", ignore=shutil.ignore_patterns(*LEFT_OVER))
        reference.mend_links(self.output / "api", lambda path: site_links.PageLinks(path.read_text(encoding="utf-8")).anchors)
        return names

    def frame(self, url, title, body, headings=()):
        from layout import page_html
        self.write(url, page_html(title, self.version, menu_html(self.menu, url), relative("index.html", url).removesuffix("index.html"),
                                  body, headings))

    def build_pages(self, names):
        """Writes the pages and the files that they lead to; returns the pages."""
        from pages import PageReader, source_page
        files = page_files(self.root)
        reader = PageReader(self.root, files, {name: place for name, (place, _) in names.items()})
        pages = [reader.read(name.as_posix()) for name in files]
        for page in pages:
            self.frame(url_of(page.name), page.title, page.body, page.headings)
        pending = sorted(set().union(*(page.files for page in pages)))
        for name in pending:
            path = self.root / name
            if path.is_dir():
                self.folder_page(name, path, pending)
            elif path.suffix in AS_FILES:
                (self.output / url_of(name)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self.output / url_of(name))
            else:
                self.frame(url_of(name), name, source_page(name, path.read_text(encoding="utf-8")))
        return pages

    def folder_page(self, name, path, pending):
        """A list of the texts in a folder; each of them becomes a page, too."""
        rows = []
        for file in sorted(path.iterdir()):
            if file.suffix not in (".cpp", ".hpp", ".txt", ".py", ".cu"):
                continue
            child = f"{name}/{file.name}"
            if child not in pending:
                pending.append(child)
            rows.append(f'<li><a href="{relative(url_of(child), url_of(name))}">{html.escape(file.name)}</a></li>')
        self.frame(url_of(name), name, f"<h1>{html.escape(name)}</h1>\n<ul>\n" + "\n".join(rows) + "\n</ul>\n")

    def build(self, doxygen):
        from search_index import script
        with tempfile.TemporaryDirectory(prefix="reference-") as work:
            names = self.build_reference(doxygen, pathlib.Path(work))
        pages = self.build_pages(names)
        self.write("search-index.js", script(pages, names))
        for name in OWN_FILES:
            shutil.copyfile(self.root / "docs/site" / name, self.output / name)
        (self.output / MARK).touch()
        return len(pages)


def missing_tools():
    """The tools that are not there, as packages of Debian and PyPI name them."""
    missing = []
    if not reference.version_of("doxygen").startswith("1.9."):
        missing.append("doxygen 1.9 (doxygen)")
    for module, packages in (("markdown_it", "python3-markdown-it, markdown-it-py"), ("pygments", "python3-pygments, Pygments")):
        try:
            __import__(module)
        except ImportError:
            missing.append(f"{module} ({packages})")
    return missing


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root, output = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    if missing := missing_tools():
        print(f"the site needs what is missing here: {', '.join(missing)}")
        return MISSING
    if output.exists():
        if any(output.iterdir()) and not (output / MARK).exists():
            sys.exit(f"{output}: expected an empty folder or an earlier site, but got other files")
        shutil.rmtree(output)
    output.mkdir(parents=True)
    (output / MARK).touch()
    try:
        pages = Site(root, output).build("doxygen")
    except SiteError as error:
        sys.exit(str(error).rstrip())
    found, written = site_links.violations(output)
    if found:
        sys.exit("\n".join(found))
    print(f"{output}/index.html: {pages} pages of docs, {written} pages in all, every link leads somewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
