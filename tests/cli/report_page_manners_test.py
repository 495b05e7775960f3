"""Pages of `bindery report` run nothing that a run contains; they can be read on a phone, at
night, on paper and by assistive technology."""

from pathlib import Path

import program
from browser import DESKTOP, PHONE
from reported_page import ReportTest
from run_files import eval_line, sample_line, steps


class Hostility(ReportTest):
    SCRIPT = "</script><script>alert(1)</script><!--"
    IMAGE = "<img src=x onerror=alert(2)>{{data}} ${alert(3)}"
    TRICKS = "\u202eevil\u2028 bell\x07 \ufeff"
    TRICKS_SHOWN = "⟨U+202E⟩evil⟨U+2028⟩ bell␇ ⟨U+FEFF⟩"

    def test_runs_are_shown_and_run_nothing(self) -> None:
        lines = [
            *steps(3, 1), eval_line(3, {self.SCRIPT: 1.0, self.TRICKS: 2.0}),
            sample_line(3, self.SCRIPT, self.IMAGE + self.TRICKS),
        ]
        name = "<b>&\u202e\n"
        made = self.make_page(self.run_of(name, lines), self.run_of("plain", lines))
        page = self.open(made)
        label = "<b>&⟨U+202E⟩␊"
        self.assertEqual(page.locator("#run-table bdi").all_text_contents(), [label, "plain"])
        self.assertEqual(page.locator("#evaluation h3").all_text_contents(),
                         [self.SCRIPT, self.TRICKS_SHOWN])
        self.assertEqual(page.locator("#samples .text").first.text_content(),
                         self.SCRIPT + self.IMAGE + self.TRICKS_SHOWN)
        self.assertEqual(page.locator("img, b, iframe").count(), 0)
        self.assertEqual(page.locator("script").count(), 5)
        policy = page.locator("meta[http-equiv]").get_attribute("content")
        self.assertTrue(policy.startswith("default-src 'none';"))
        self.assertNotIn("unsafe", policy)

    def test_a_name_that_is_no_text_is_shown(self) -> None:
        run = self.run_of("plain", steps(3, 1))
        odd = Path(str(self.folder) + "/a\udcff")
        run.rename(odd)
        page = self.open(self.make_page(odd))
        self.assertEqual(page.locator("h1").text_content(), "a\ufffd")


class Screens(ReportTest):
    def setUp(self) -> None:
        super().setUp()
        runs = []
        for seed in range(10):
            lines = [{**line, "mfu": 0.25} for line in steps(600 if seed == 0 else 40, seed)]
            step = lines[-1]["step"]
            lines += [eval_line(step, {"held-out" * 10: 2.5, "other": 3.5}),
                      sample_line(step, "Once", " upon a time" + "w" * 800)]
            runs.append(self.run_of(f"run-{seed}" + "long" * 12 * (seed % 2), lines))
        self.made = self.make_page(*runs)

    def test_a_phone_scrolls_one_way_only(self) -> None:
        page = self.open(self.made, **PHONE)
        self.assert_scrolls_one_way(page)
        for summary in page.locator("summary").all():
            summary.click()
        self.assert_scrolls_one_way(page)

    def test_text_has_contrast_by_day_and_by_night(self) -> None:
        for scheme in ("light", "dark"):
            page = self.open(self.made, **DESKTOP, color_scheme=scheme)
            self.assert_dark(page, scheme == "dark")
            self.assert_contrast(page, "p", "h1", "h2", "h3", "h4", "dt", "dd", "th", "td",
                                 "nav a", "summary", ".note", ".plot text", "label", "output",
                                 ".readouts li", ".text", ".prompt")

    def test_curves_have_contrast_by_day_and_by_night(self) -> None:
        for scheme in ("light", "dark"):
            page = self.open(self.made, **DESKTOP, color_scheme=scheme)
            ratios = page.evaluate("""() => {
                const luminance = (color) => color.match(/[\\d.]+/g).slice(0, 3)
                    .map((c) => Number(c) / 255)
                    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
                return [...document.querySelectorAll('.area .curve')].map((curve) => {
                    const colors = [getComputedStyle(curve).stroke,
                        getComputedStyle(curve.closest('.card')).backgroundColor];
                    const [low, high] = colors.map(luminance).sort((a, b) => a - b);
                    return (high + 0.05) / (low + 0.05);
                });
            }""")
            self.assertGreater(len(ratios), 50)
            self.assertGreaterEqual(min(ratios), 3)

    def test_neighbouring_runs_differ_in_more_than_colour(self) -> None:
        page = self.open(self.made)
        dashes = page.locator("[data-plot=smoothed_loss] .area .curve").evaluate_all(
            "all => all.map(curve => getComputedStyle(curve).strokeDasharray)"
        )
        self.assertEqual(len(set(dashes[:4])), 4)

    def test_paper_has_everything(self) -> None:
        page = self.open(self.made, **DESKTOP, color_scheme="dark")
        page.emulate_media(media="print")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.assert_paper_hides_nothing(page)
        self.assertFalse(page.locator("#step").is_visible())
        for selector in ("h1", "#headline dd", "#run-table td", "#curves .curves",
                         "#curves table", "#evaluation .curves", "#samples .text"):
            self.assertGreater(page.locator(selector).count(), 0)
            self.assertTrue(page.locator(selector).last.is_visible(), selector)
        self.assertGreater(len(page.pdf()), 10_000)

    def test_assistive_technology_finds_its_way(self) -> None:
        for scheme, screen in (("light", DESKTOP), ("dark", PHONE)):
            page = self.open(self.made, **screen, color_scheme=scheme)
            self.assert_accessible(page)
            drawing = page.locator("[data-plot=learning_rate] .curves")
            self.assertRegex(drawing.get_attribute("aria-label"),
                             r"^Learning rate over steps\. run-0: .* at step 1, .* at step 600")


if __name__ == "__main__":
    program.main()
