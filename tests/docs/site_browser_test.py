#!/usr/bin/env python3
"""The site of the documentation in a real browser: narrow and wide windows, colours, menu and search, without a network.

Usage: site_browser_test.py --site FOLDER --chromium PROGRAM; exits with 77 without Chromium or without the site.
"""
import argparse
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from chromium import Chromium  # noqa: E402

NARROW, WIDE = 480, 1440
CLASSES = ("Communicator", "Event", "Graph", "Stream", "Tensor", "memory_1_1MemPool")
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 25, 29)"
SITE = pathlib.Path()
CHROMIUM = ""


class SiteBrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(Chromium(CHROMIUM))

    def open(self, name, width=WIDE, colours="light"):
        page = self.browser.open(SITE / "index.html", width, 900)
        page.call("Network.enable")
        page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.go(page, name)
        return page

    def go(self, page, name):
        url = (SITE / name).as_uri()
        page.call("Page.navigate", url=url)
        page.wait_for(f"location.href.split('#')[0] === {json.dumps(url)} && document.readyState === 'complete'")

    def type(self, page, text):
        page.click_element("#search input")
        page.call("Input.insertText", text=text)
        page.wait_for("document.querySelectorAll('#results a').length > 0")
        return page.evaluate("[...document.querySelectorAll('#results a')].map((a) => [a.querySelector('strong').textContent, a.href])")

    def test_no_page_is_wider_than_a_narrow_window(self):
        names = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")
                       if path.relative_to(SITE).parts[0] not in ("api", "files"))
        api = sorted(path.relative_to(SITE).as_posix() for path in (SITE / "api").glob("group__*.html"))
        api += ["api/index.html", "api/annotated.html", *(f"api/classgantry_1_1{name}.html" for name in CLASSES)]
        self.assertGreater(len(names), 60)
        page = self.open("index.html", NARROW)
        for name in [*names, *api]:
            self.go(page, name)
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), NARROW, name)
            # The text has the window for itself: no menu stands beside it.
            self.assertGreater(page.evaluate("document.querySelector('main').getBoundingClientRect().width"), 0.95 * NARROW, name)
        self.assertEqual(page.errors(), [])

    def test_the_menu_of_a_narrow_window_opens(self):
        shown = "document.querySelector('#menu').checkVisibility()"
        for name in ("how-to/tune.html", "api/classgantry_1_1Event.html"):
            page = self.open(name, NARROW)
            self.assertFalse(page.evaluate(shown))
            page.click_element("#menu-button")
            self.assertTrue(page.evaluate(shown))
        page = self.open("how-to/tune.html")
        self.assertTrue(page.evaluate(shown))
        self.assertEqual(page.evaluate("document.querySelector('#menu [aria-current]').textContent"), "Tune gantry")

    def test_colours_follow_the_system_until_the_button_sets_them(self):
        for name in ("how-to/tune.html", "api/classgantry_1_1Event.html"):
            page = self.open(name, colours="dark")
            page.evaluate("localStorage.clear()")
            self.go(page, "index.html")
            self.go(page, name)
            self.assertEqual(page.evaluate(BACKGROUND), DARK)
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
            self.assertEqual(page.evaluate(BACKGROUND), LIGHT)
            page.click_element("#theme-button")
            self.assertEqual(page.evaluate(BACKGROUND), DARK)
            self.go(page, "index.html")
            self.assertEqual(page.evaluate(BACKGROUND), DARK, "another page keeps the choice")

    def test_the_search_finds_pages_and_names(self):
        for name in ("how-to/tune.html", "api/classgantry_1_1Event.html"):
            page = self.open(name, NARROW)
            results = self.type(page, "all_reduce")
            self.assertIn("gantry::Communicator::all_reduce", [title for title, _ in results[:3]])
            self.assertTrue(any("/api/" not in link for _, link in results))
            box = page.evaluate("(({left, right}) => [left, right])(document.querySelector('#results').getBoundingClientRect())")
            self.assertTrue(0 <= box[0] < box[1] <= NARROW, box)
            self.assertEqual(page.errors(), [])
        page = self.open("index.html")
        title, link = self.type(page, "With srun alone")[0]
        self.assertEqual(title, "With srun alone")
        page.evaluate("document.querySelector('#search').requestSubmit()")
        page.wait_for(f"location.href === {json.dumps(link)}")


def main():
    global SITE, CHROMIUM
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=pathlib.Path, required=True)
    parser.add_argument("--chromium", required=True)
    options, rest = parser.parse_known_args()
    SITE, CHROMIUM = options.site.resolve(), options.chromium
    if not CHROMIUM or not (SITE / "index.html").exists():
        print(f"skipped: there is no {'Chromium' if not CHROMIUM else SITE}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
