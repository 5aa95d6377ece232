"""The index of the search: parts of pages with their words, and names of the API reference."""

import json
import re

from tree import url_of


def entries_of(page):
    """One entry for each heading of a page: [heading, page, place, words]."""
    url = url_of(page.name)
    rows = []
    for name, heading, words in page.texts:
        text = re.sub(r"\s+", " ", " ".join(words)).strip()
        rows.append([heading, page.title, f"{url}#{name}" if name else url, text])
    return rows


def script(pages, names):
    """The index as a script, which a page can load from a file; a request for data could not."""
    rows = [row for page in pages for row in entries_of(page)]
    rows += [[name, kind, place, ""] for name, (place, kind) in sorted(names.items()) if "::~" not in name]
    return f"window.searchIndex = {json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};\n"
