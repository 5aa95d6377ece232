#!/usr/bin/env python3
"""Fails on a link of the built site that leads nowhere, and on a page that needs the network.

Usage: site_links.py SITE
"""
import html.parser
import os
import pathlib
import re
import sys
import urllib.parse

SCHEME = re.compile(r"[a-z][a-z+.-]*:|//")
LOADING = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)")


class PageLinks(html.parser.HTMLParser):
    """The anchors of one page, and its links as (line, target, whether the browser loads it by itself)."""

    def __init__(self, text):
        super().__init__()
        self.anchors = set()
        self.links = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(filter(None, (values.get("id"), values.get("name") if tag == "a" else None)))
        if tag == "a" and values.get("href") is not None:
            self.links.append((self.getpos()[0], values["href"], False))
        elif values.get(LOADING.get(tag)):
            self.links.append((self.getpos()[0], values[LOADING[tag]], True))


def complaints_of(site, path, pages):
    """The complaints on the page `path`."""
    name = path.relative_to(site).as_posix()
    for line, target, is_loaded in pages[path].links:
        if SCHEME.match(target):
            if is_loaded and not target.startswith("data:"):
                yield f"{name}:{line}: {target}: loaded from the network"
            continue
        file, _, wanted = target.partition("#")
        file = urllib.parse.unquote(file.partition("?")[0])
        aim = pathlib.Path(os.path.normpath(path.parent / file)) if file else path
        if not aim.is_file():
            yield f"{name}:{line}: {target}: no such file"
        elif wanted and aim in pages and urllib.parse.unquote(wanted) not in pages[aim].anchors:
            yield f"{name}:{line}: {target}: no such anchor"


def violations(site):
    site = site.resolve()
    pages = {path: PageLinks(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: no page is there"]
    for path in pages:
        found += complaints_of(site, path, pages)
    for path in sorted(site.rglob("*.css")):
        for target in CSS_URL.findall(path.read_text(encoding="utf-8")):
            name = path.relative_to(site).as_posix()
            if SCHEME.match(target) and not target.startswith("data:"):
                found.append(f"{name}:1: {target}: loaded from the network")
            elif not SCHEME.match(target) and not (path.parent / target.partition("#")[0]).is_file():
                found.append(f"{name}:1: {target}: no such file")
    return found, len(pages)


def main():
    found, pages = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(found) if found else f"{pages} pages, every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
