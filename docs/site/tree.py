"""The places of pages, sources and pictures in the site, and the menu that all pages share."""

import dataclasses
import html
import os
import pathlib
import re

SPECIAL = {"README.md": "index.html", "docs/index.md": "pages.html", "CONTRIBUTING.md": "contributing.html",
           "CHANGELOG.md": "changelog.html", "SECURITY.md": "security.html"}
AS_FILES = {".svg", ".png", ".json"}  # copied; other files that pages link to become pages with their text
INDEX = "docs/index.md"
HEADING = re.compile(r"^# (.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s#]+\.md)[^()\s]*\)")
GROUP = re.compile(r"^@defgroup (\w+) (.+?)\s*$", re.MULTILINE)


class SiteError(Exception):
    """Text of the sources that cannot become a page, with its place."""


@dataclasses.dataclass
class Entry:
    """One line of the menu: `url` is relative to the root of the site."""

    title: str
    url: str


@dataclasses.dataclass
class Section:
    title: str
    entries: list


def page_files(root):
    """The Markdown files that become pages, relative to the root of the repository."""
    files = [pathlib.PurePosixPath(name) for name in SPECIAL if (root / name).exists()]
    below = sorted(path.relative_to(root) for path in (root / "docs").rglob("*.md"))
    return files + [pathlib.PurePosixPath(path) for path in below
                    if path.as_posix() not in SPECIAL and path.parts[1] not in ("doxygen", "site")]


def url_of(name):
    """Where the file `name` of the repository is in the site."""
    if name in SPECIAL:
        return SPECIAL[name]
    path = pathlib.PurePosixPath(name)
    if path.parts[0] == "docs" and path.suffix == ".md":
        return path.relative_to("docs").with_suffix(".html").as_posix()
    if path.parts[:2] == ("docs", "pictures"):
        return path.relative_to("docs").as_posix()
    if path.suffix in AS_FILES:
        return f"files/{name}"
    return f"files/{name}.html"


def relative(url, page):
    """`url` as a link of the page `page`; both are relative to the root of the site."""
    return os.path.relpath(url, os.path.dirname(page) or ".")


def title_of(text, name):
    heading = HEADING.search(text)
    if not heading:
        raise SiteError(f"{name}:1: expected a heading of level 1, but got none")
    return heading[1].replace("`", "")


def plain(text):
    """Markdown of one line without its marks."""
    return re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", text).replace("`", "").replace("**", "")


def read_menu(root):
    """The sections of the index, each with the pages that the section names first, then the API reference."""
    titles = {name.as_posix(): title_of((root / name).read_text(encoding="utf-8"), name) for name in page_files(root)}
    sections = [Section("Start", [Entry("Overview", "index.html"), Entry("All pages", "pages.html")])]
    listed = {"README.md", INDEX}
    for part in re.split(r"^## ", (root / INDEX).read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        is_preface = heading.startswith("# ")
        section = sections[0] if is_preface else Section(heading.strip(), [])
        for link in LINK.findall(text):
            name = os.path.normpath(f"docs/{link}")
            if name in titles and name not in listed and not (is_preface and name.startswith("docs/tutorial")):
                listed.add(name)
                section.entries.append(Entry(titles[name], url_of(name)))
        if not is_preface:
            sections.append(section)
    missing = sorted(set(titles) - listed)
    sections[-1].entries += [Entry(titles[name], url_of(name)) for name in missing]
    groups = GROUP.findall((root / "docs/doxygen/groups.dox").read_text(encoding="utf-8"))
    sections.append(Section("API reference", [Entry("Topics", "api/index.html"), Entry("All classes", "api/annotated.html"),
                                              *(Entry(title, f"api/group__{name}.html") for name, title in groups)]))
    return sections


def menu_html(sections, page, prefix=None):
    """The menu as a page shows it. `prefix` stands for the way to the root of the site where no page is known yet."""
    out = []
    for section in sections:
        is_open = any(entry.url == page for entry in section.entries) or (prefix is not None and section.title == "API reference")
        out.append(f'<details{" open" if is_open or section.title == "Start" else ""}><summary>{html.escape(section.title)}</summary><ul>')
        for entry in section.entries:
            link = relative(entry.url, page) if prefix is None else prefix + entry.url
            current = ' aria-current="page"' if entry.url == page else ""
            out.append(f'<li><a href="{link}"{current}>{html.escape(entry.title)}</a></li>')
        out.append("</ul></details>")
    return "\n".join(out)
