"""Markdown pages as HTML: links lead to pages of the site, blocks have colours, names lead to the API reference."""

import dataclasses
import html
import os
import re

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from tree import SiteError, relative, url_of

COMMENT = re.compile(r"\s*(<!--.*?-->\s*)+", re.DOTALL)
SAVED_AS = re.compile(r"<!--\s*file:\s*(\S+)\s*-->")
NAME = re.compile(r"(?:gantry::)?((?:\w+::)*~?\w+)(?:\(.*\))?", re.DOTALL)
EXTERNAL = re.compile(r"[a-z]+:")
LEXERS = {"sh": "bash", "cpp": "cpp", "cuda": "cuda", "cmake": "cmake"}
FORMATTER = HtmlFormatter(nowrap=True)


def anchor(title):
    """The name that a heading has in links, as a Git host makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def highlighted(code, language):
    lexer = get_lexer_by_name(LEXERS[language], stripnl=False) if language in LEXERS else TextLexer(stripnl=False)
    return highlight(code, lexer, FORMATTER)


def source_page(name, text):
    """The text of a source file as the body of a page."""
    try:
        lexer = get_lexer_for_filename(name, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    title = html.escape(name)
    return f"<h1>{title}</h1>\n<figure class=\"code\"><pre><code>{highlight(text, lexer, FORMATTER)}</code></pre></figure>\n"


@dataclasses.dataclass
class Page:
    """A page of the repository as HTML. Texts are (anchor, heading, words) of its parts, for the search."""

    name: str
    title: str = ""
    body: str = ""
    headings: list = dataclasses.field(default_factory=list)
    texts: list = dataclasses.field(default_factory=list)
    files: set = dataclasses.field(default_factory=set)  # files and folders of the repository that are no pages


class PageReader:
    """Makes pages of one repository. `names` maps qualified names to their places in the API reference."""

    def __init__(self, root, pages, names):
        self.root = root
        self.pages = {name.as_posix() for name in pages}
        self.names = names
        self.markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

    def place(self, page, token):
        return f"{page.name}:{token.map[0] + 1 if token.map else 1}"

    def link(self, page, target, place):
        """The target of a link as the site has it."""
        if EXTERNAL.match(target) or target.startswith("#"):
            return target
        file, _, wanted = target.partition("#")
        name = os.path.normpath(os.path.join(os.path.dirname(page.name), file))
        if name.startswith("..") or not (self.root / name).exists():
            raise SiteError(f"{place}: {target}: no such file")
        if name not in self.pages:
            page.files.add(name)
        return relative(url_of(name), url_of(page.name)) + (f"#{wanted}" if wanted else "")

    def code(self, page, token, linked):
        text = html.escape(token.content, quote=False)
        place = None if linked else self.reference_of(token.content)
        shown = f"<code>{text}</code>"
        return f'<a class="name" href="{relative(place, url_of(page.name))}">{shown}</a>' if place else shown

    def reference_of(self, text):
        """The place of a name in the API reference; a word without `::`, `()` or a capital may mean anything."""
        match = NAME.fullmatch(text)
        if not match or not ("::" in text or "(" in text or re.match(r"[A-Z]\w*[a-z]", text)):
            return None
        return self.names.get(f"gantry::{match[1]}")

    def inline(self, page, token):
        place = self.place(page, token)
        linked = 0
        for child in token.children:
            if child.type == "link_open":
                linked += 1
                child.attrs["href"] = self.link(page, child.attrs["href"], place)
            elif child.type == "link_close":
                linked -= 1
            elif child.type == "image":
                child.attrs["src"] = self.link(page, child.attrs["src"], place)
            elif child.type == "code_inline":
                child.content, child.type = self.code(page, child, linked), "html_inline"
            elif child.type == "html_inline" and not COMMENT.fullmatch(child.content):
                raise SiteError(f"{place}: expected Markdown, but got {child.content}")

    def heading(self, page, tokens, at, taken):
        token, text = tokens[at], tokens[at + 1]
        level = int(token.tag[1])
        plain = "".join(child.content for child in text.children if child.type in ("text", "code_inline"))
        if level == 1 and not page.title:
            page.title = plain
        name = base = anchor(plain)
        number = 0
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        token.attrs["id"] = name
        shown = html.escape(plain)
        page.headings.append((level, name, shown))
        page.texts.append((name if level > 1 else "", plain, []))

    def block(self, token, saved_as):
        caption = f"<figcaption>{html.escape(saved_as)}</figcaption>" if saved_as else ""
        code = highlighted(token.content, token.info.strip())
        return f'<figure class="code">{caption}<pre><code>{code}</code></pre></figure>\n'

    def read(self, name):
        """The page `name` of the repository."""
        page = Page(name)
        tokens = self.markdown.parse((self.root / name).read_text(encoding="utf-8"))
        taken, saved_as = set(), ""
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                self.heading(page, tokens, at, taken)
            elif token.type == "fence":
                token.content, token.type = self.block(token, saved_as), "html_block"
            elif token.type == "table_open":
                token.attrs["class"] = "table"
            elif token.type == "html_block":
                if not COMMENT.fullmatch(token.content):
                    raise SiteError(f"{self.place(page, token)}: expected Markdown, but got {token.content.strip()}")
                match = SAVED_AS.search(token.content)
                saved_as = match[1] if match else saved_as
                token.content = ""
                continue
            elif token.type == "inline":
                if page.texts and tokens[at - 1].type != "heading_open":
                    words = (child.content for child in token.children if child.type in ("text", "code_inline"))
                    page.texts[-1][2].append(" ".join(words))
                self.inline(page, token)
            saved_as = ""
        page.body = self.markdown.renderer.render(tokens, self.markdown.options, {})
        page.body = page.body.replace('<table class="table">', '<div class="wide"><table>').replace("</table>", "</table></div>")
        return page
