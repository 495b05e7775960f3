"""Pages of `bindery inspect --html` run nothing that a corpus contains; they can be read on a
phone, at night, on paper and by assistive technology; the file exists completely or not at
all."""

import os
import resource
import shutil
from pathlib import Path

import program
from browser import DESKTOP, PHONE
from inspected_page import FORMAT_1, MASKED_FIELDS, SEPARATOR, InspectPageTest, some_texts
from playwright.sync_api import Page
from program import bindery


class Hostility(InspectPageTest):
    TEXTS = {
        "</script><script>alert(1)</script>": "</script><script>alert(1)</script>",
        "<!-- <script>": "<!-- <script>",
        "<img src=x onerror=alert(2)>": "<img src=x onerror=alert(2)>",
        "{{data}} ${alert(3)} \\u003c": "{{data}} ${alert(3)} \\u003c",
        "a\u2028b\u2029c": "a⟨U+2028⟩b⟨U+2029⟩c",
        "nul\x00 bell\x07 escape\x1b return\r": "nul␀ bell␇ escape␛ return␍",
        "\u202eevil\u202c \ufeff": "⟨U+202E⟩evil⟨U+202C⟩ ⟨U+FEFF⟩",
        "\u2066x\u2069": "⟨U+2066⟩x⟨U+2069⟩",
        "\x7f\x80\x9f": "⟨U+007F⟩⟨U+0080⟩⟨U+009F⟩",
        "𝔸 語 é": "𝔸 語 é",
    }

    def hostile_dataset(self) -> Path:
        name = "<img src=x onerror=alert(4)>\u202e\n&quot;.jsonl"
        path = self.corpus(name, list(self.TEXTS))
        source = "</script><script>alert(5)</script>"
        return self.pack(self.folder / "<b>&", [], "--source", f"{source}={path}")

    def test_a_corpus_is_shown_and_runs_nothing(self) -> None:
        dataset = self.hostile_dataset()
        made = self.make_page(dataset, "--scan", "--duplicates")
        html = made.read_text(encoding="utf-8")
        self.assertRegex(html, "<title>[^<]*&#60;b&#62;&#38;</title>")
        page = self.open(made)
        texts = page.locator("#row-detail .text").all_text_contents()
        self.assertCountEqual(texts, [text + SEPARATOR for text in self.TEXTS.values()])
        self.assertEqual(page.locator("h1").text_content(), "<b>&")
        self.assertIn("<img src=x onerror=alert(4)>⟨U+202E⟩␊&quot;.jsonl, byte 0",
                      page.locator("article h4").all_text_contents()[0])
        self.assertTrue(self.labels(page, "sources")[0].startswith("</script><script>alert(5)"))
        self.assertEqual(page.locator("img, b, iframe").count(), 0)
        self.assertEqual(page.locator("script").count(), 5)

    def test_bytes_that_are_no_text_are_shown_as_such(self) -> None:
        path = self.write("a.txt", b"good\n%\n\xff\xfe bad \xc3\n%\n\xf0\x9f\x98\n%\n")
        dataset = self.pack(self.folder / "bytes", [path], "--delimiter", "%",
                            "--invalid-utf8", "keep")
        page = self.open(self.make_page(dataset))
        texts = page.locator("#row-detail .text").all_text_contents()
        self.assertCountEqual(texts, [t + SEPARATOR for t in ("good", "\ufffd\ufffd bad \ufffd",
                                                               "\ufffd")])

    def test_nothing_that_came_from_outside_could_run(self) -> None:
        page = self.open(self.make_page(self.hostile_dataset()))
        policy = page.locator("meta[http-equiv]").get_attribute("content")
        self.assertTrue(policy.startswith("default-src 'none';"))
        self.assertNotIn("unsafe", policy)
        page.evaluate("""() => {
            const script = document.createElement('script');
            script.textContent = 'window.ran = true';
            const seen = new Promise((done) => document.addEventListener(
                'securitypolicyviolation', (event) => done(event.effectiveDirective)));
            document.body.append(script);
            return seen;
        }""")
        self.assertFalse(page.evaluate("'ran' in window"))

    def check_quiet(self, page: Page, path: Path, said: list[str]) -> None:
        refused = [s for s in said if "Content Security Policy" in s]
        if self._testMethodName == "test_nothing_that_came_from_outside_could_run":
            self.assertEqual(len(refused), 1)
        super().check_quiet(page, path, [s for s in said if s not in refused])


class Screens(InspectPageTest):
    def setUp(self) -> None:
        super().setUp()
        path = self.corpus(f"{'long-name' * 20}.jsonl", some_texts(7, 200) + ["w" * 3000])
        self.dataset = self.pack(self.folder / ("d" * 100), [], "--seq-len", 600,
                                 "--source", f"{'s' * 300}={path}")
        self.page_path = self.make_page(self.dataset, "--duplicates")

    def test_a_phone_scrolls_one_way_only(self) -> None:
        page = self.open(self.page_path, **PHONE)
        for i in range(page.locator("#row-list button").count()):
            page.locator("#row-list button").nth(i).click()
            page.locator("#edges").check()
            self.assert_scrolls_one_way(page)
        for summary in page.locator("summary").all():
            summary.click()
        self.assert_scrolls_one_way(page)

    def test_text_has_contrast_by_day_and_by_night(self) -> None:
        for scheme in ("light", "dark"):
            page = self.open(self.page_path, **DESKTOP, color_scheme=scheme)
            page.locator("#edges").check()
            page.locator(".t").nth(3).hover()
            self.assert_dark(page, scheme == "dark")
            self.assert_contrast(page, "p", "h1", "h2", "h3", "h4", "dt", "dd", "th", "td",
                                 "nav a", "summary", ".note", ".readout", ".plot text",
                                 ".strip text", "#row-list button", ".t", ".t.id", ".t.chosen",
                                 ".status", "label")

    def test_masked_text_can_still_be_read(self) -> None:
        path = self.masked_corpus("m.jsonl", ["two\nlines", "long " * 40])
        dataset = self.pack(self.folder / "m", [path], "--seq-len", 128, *MASKED_FIELDS)
        path = self.make_page(dataset)
        for scheme, screen in (("light", DESKTOP), ("dark", PHONE)):
            page = self.open(path, **screen, color_scheme=scheme)
            self.assert_accessible(page)
            page.locator("#edges").check()
            page.locator(".t.masked").nth(3).hover()
            self.assert_contrast(page, ".t.masked", ".t.masked.chosen", ".t:not(.masked)", ".t.id")
            bright, dim = (page.locator(selector).first.evaluate("t => getComputedStyle(t).color")
                           for selector in (".t:not(.masked)", ".t.masked:not(.chosen)"))
            self.assertNotEqual(bright, dim)
            self.assert_scrolls_one_way(page)

    def test_paper_has_everything(self) -> None:
        page = self.open(self.page_path, **DESKTOP, color_scheme="dark")
        page.emulate_media(media="print")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        for selector in ("h1", "#headline dd", "#ledger-cards table", "#ledger-cards dl",
                         ".plot svg", ".plot table", "#row-list .strip", "#row-detail .text",
                         "#shard-table td", "#duplicates"):
            parts = page.locator(selector).all()
            self.assertGreater(len(parts), 0, selector)
            for part in parts:
                self.assertTrue(part.is_visible(), selector)
        self.assert_paper_hides_nothing(page)
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(page.locator("details[open]").count(), 0)
        self.assertGreater(len(page.pdf()), 10_000)

    def test_assistive_technology_finds_its_way(self) -> None:
        for scheme, screen in (("light", DESKTOP), ("dark", PHONE)):
            page = self.open(self.page_path, **screen, color_scheme=scheme)
            self.assert_accessible(page)


class Files(InspectPageTest):
    def names(self) -> set[str]:
        return set(os.listdir(self.folder))

    def test_a_file_that_is_there_is_replaced_only_if_asked(self) -> None:
        path = self.write("report.html", b"mine")
        result = bindery("inspect", "--html", path, FORMAT_1 / "concat")
        self.assertEqual(result.status, 2, result)
        self.assertIn("--overwrite", result.stderr)
        self.assertEqual(path.read_bytes(), b"mine")
        self.succeeds("inspect", "--html", path, "--overwrite", FORMAT_1 / "concat")
        self.assertIn(b"Bindery", path.read_bytes())
        self.assertEqual(self.names(), {"report.html"})

    def test_an_impossible_page_is_refused_and_leaves_nothing(self) -> None:
        (self.folder / "folder").mkdir()
        before = self.names()
        for name in ("folder", "folder/", "none/", "none/" + "x" * 300, "", "x" * 300):
            path = f"{self.folder}/{name}" if name else ""
            with self.subTest(name):
                result = bindery("inspect", "--html", path, "--overwrite", FORMAT_1 / "concat")
                self.assertEqual(result.status, 2, result)
                self.assertRegex(result.stderr, "cannot|the name is empty")
                self.assertEqual(self.names(), before)

    def test_a_write_that_fails_leaves_nothing(self) -> None:
        path = self.write("report.html", b"mine")
        result = bindery(
            "inspect", "--html", path, "--overwrite", FORMAT_1 / "concat",
            restore_signals=False,  # Python ignores SIGXFSZ: write() fails instead
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        )
        self.assertEqual(result.status, 2, result)
        self.assertIn("report.html", result.stderr)
        self.assertEqual(path.read_bytes(), b"mine")
        self.assertEqual(self.names(), {"report.html"})

    def test_damage_leaves_no_page(self) -> None:
        dataset = self.folder / "damaged"
        shutil.copytree(FORMAT_1 / "best-fit", dataset)
        (dataset / "00000-00000.arrow").unlink()
        result = bindery("inspect", "--html", self.folder / "report.html", dataset)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(self.names(), {"damaged"})

    def test_contradictory_options_are_refused(self) -> None:
        path = self.folder / "report.html"
        for arguments in (["--json"], ["--row", 0], ["--sample", 3],
                          ["--diff", FORMAT_1 / "concat"]):
            result = bindery("inspect", "--html", path, *arguments, FORMAT_1 / "concat")
            self.assertEqual(result.status, 2, result)
            self.assertIn("together", result.stderr)
        result = bindery("inspect", "--overwrite", FORMAT_1 / "concat")
        self.assertEqual(result.status, 2, result)
        self.assertEqual(self.names(), set())

    def test_the_same_dataset_gives_the_same_bytes(self) -> None:
        corpus = self.corpus("a.jsonl", some_texts(8, 300))
        dataset = self.pack(self.folder / "a", [corpus], "--seq-len", 65, "--unit-size", "4K")
        pages = [self.make_page(dataset, "--scan", "--duplicates", "--threads", n).read_bytes()
                 for n in (1, 3)]
        self.assertEqual(*pages)


if __name__ == "__main__":
    program.main()
