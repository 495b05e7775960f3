"""Pages in a real browser: Debian's Chromium, without a window. Every page must be quiet:
nothing on the console, no error, no dialog, and no request except for its own file."""

import re
import shutil
import unittest
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from program import ProgramTest

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}

# The contrast of each text with its background, computed as WCAG defines it.
CONTRASTS = """(selector) => {
    const channels = (color) => color.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => channels(color).slice(0, 3).map((c) => c / 255)
        .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const isClear = (color) => channels(color)[3] === 0;
    const behind = (node) => {
        const segment = node.closest('a')?.querySelector('.segment');
        if (segment)
            return getComputedStyle(segment).fill;
        while (node.parentElement && isClear(getComputedStyle(node).backgroundColor))
            node = node.parentElement;
        return getComputedStyle(node).backgroundColor;
    };
    return [...document.querySelectorAll(selector)].map((node) => {
        const style = getComputedStyle(node);
        const front = node instanceof SVGElement ? style.fill : style.color;
        const [low, high] = [luminance(front), luminance(behind(node))].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    });
}"""

_browser: Browser | None = None


def browser() -> Browser:
    """Returns the browser that all tests of a script share; it is closed at the end."""
    global _browser
    if _browser is None:
        path = shutil.which("chromium")
        if path is None:
            raise AssertionError("there is no chromium: scripts/setup --test installs it")
        playwright = sync_playwright().start()
        unittest.addModuleCleanup(playwright.stop)
        # Chromium's sandbox does not work for root, and containers have a small /dev/shm.
        _browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        unittest.addModuleCleanup(_browser.close)
    return _browser


class BrowserTest(ProgramTest):
    """A test that opens pages."""

    def open(self, path: Path, **context: object) -> Page:
        """Opens the page; at the end of the test it must have been quiet."""
        page = browser().new_page(**(context or DESKTOP))
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        self.addCleanup(self.check_quiet, page, path, said)
        return page

    def check_quiet(self, page: Page, path: Path, said: list[str]) -> None:
        page.close()
        self.assertEqual(said, [path.as_uri()])

    def labels(self, page: Page, plot: str) -> list[str]:
        bars = page.locator(f"[data-plot={plot}] .bar")
        return bars.evaluate_all("bars => bars.map(b => b.getAttribute('aria-label'))")

    def cells(self, page: Page, table: str) -> list[list[str]]:
        return page.locator(f"{table} tbody tr, {table} tfoot tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )

    def assert_scrolls_one_way(self, page: Page) -> None:
        widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        self.assertEqual(*widths)

    def assert_contrast(self, page: Page, *selectors: str) -> None:
        """Each selector matches some text, and all of it has enough contrast."""
        for selector in selectors:
            with self.subTest(selector=selector):
                contrasts = page.evaluate(CONTRASTS, selector)
                self.assertGreater(len(contrasts), 0)
                self.assertGreaterEqual(min(contrasts), 4.5)

    def assert_dark(self, page: Page, dark: bool) -> None:
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(sum(map(int, re.findall(r"\d+", ground))) < 384, dark)

    def assert_accessible(self, page: Page) -> None:
        """For assistive technology, as far as a program can tell."""
        found = Axe().run(page).response["violations"]
        self.assertEqual([(rule["id"], rule["nodes"][0]["html"]) for rule in found], [])
        self.assertEqual(page.evaluate("document.documentElement.lang"), "en")
        levels = page.locator("h1, h2, h3, h4, h5, h6").evaluate_all(
            "all => all.filter(h => h.checkVisibility()).map(h => Number(h.tagName[1]))"
        )
        self.assertEqual(levels.count(1), 1)
        self.assertTrue(all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels)

    def assert_paper_hides_nothing(self, page: Page) -> None:
        """On paper (media "print") the page is white, nothing is cut off or folded."""
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(ground, "rgb(255, 255, 255)")
        self.assertFalse(page.locator("nav").is_visible())
        self.assertEqual(page.locator("details:not([open])").count(), 0)
        hidden = page.evaluate("""() => [...document.querySelectorAll('main, main *')]
            .filter((node) => node.scrollHeight > node.clientHeight + 1
                && ['auto', 'scroll', 'hidden'].includes(getComputedStyle(node).overflowY)
                && node.tagName !== 'CAPTION').length""")
        self.assertEqual(hidden, 0)
