"""The frame of every page: the bar with search and colours, the menu, the page, its headings."""

import html

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{styles}<link rel="stylesheet" href="{prefix}site.css">
<script>document.documentElement.dataset.theme = localStorage.getItem("theme") || "";
document.documentElement.classList.add("scripted");</script>
<script src="{prefix}site.js" data-root="{prefix}" defer></script>
{scripts}</head>
<body>
<a class="skip" href="#page">To the page</a>
<header class="bar">
<button type="button" id="menu-button" aria-controls="menu" aria-expanded="false">Menu</button>
<a class="home" href="{prefix}index.html">gantry <span>{version}</span></a>
<form id="search" role="search"><input type="search" placeholder="Search" aria-label="Search" autocomplete="off"
aria-controls="results"><div id="results" hidden></div></form>
<button type="button" id="theme-button">Colours</button>
</header>
<div class="frame">
<nav id="menu" aria-label="Pages">
{menu}
</nav>
"""
FOOT = """</div>
</body>
</html>
"""


def frame_begin(title, version, menu, prefix, styles="", scripts=""):
    return HEAD.format(title=title, version=version, menu=menu, prefix=prefix, styles=styles, scripts=scripts)


def contents_html(headings):
    """The list of a page's headings; empty if there are fewer than two. A heading is (level, anchor, text as HTML)."""
    shown = [heading for heading in headings if heading[0] in (2, 3)]
    if len(shown) < 2:
        return ""
    rows = "\n".join(f'<li class="level-{level}"><a href="#{anchor}">{text}</a></li>' for level, anchor, text in shown)
    return f'<aside class="contents-list" aria-label="On this page"><p>On this page</p><ul>\n{rows}\n</ul></aside>\n'


def page_html(title, version, menu, prefix, body, headings):
    shown = "gantry" if title == "gantry" else f"{html.escape(title)} – gantry"
    return (frame_begin(shown, version, menu, prefix) + f'<main id="page">\n{body}</main>\n' + contents_html(headings) + FOOT)


def reference_frame(version, menu):
    """The header and the footer that doxygen puts around its pages."""
    styles = '<link rel="stylesheet" href="$relpath^$stylesheet">\n$extrastylesheet'
    scripts = '<script src="$relpath^jquery.js"></script>\n<script src="$relpath^dynsections.js"></script>\n'
    header = frame_begin("$title – gantry", version, menu, "$relpath^../", styles, scripts)
    return header + '<main id="page" class="reference">\n<div id="top">\n', "</main>\n" + FOOT
