"""`bindery report` in a real browser: the page shows the contents of the runs' metrics.jsonl."""

import itertools
import json
import math

import program
from browser import DESKTOP, PHONE
from playwright.sync_api import Page
from program import LONG
from reported_page import DATASET, MODEL, ReportTest
from run_files import RUNS, eval_line, sample_line, steps

PLOTS = ["smoothed_loss", "learning_rate", "gradient_norm", "tokens_per_second", "flops"]
SMOOTHING = 0.98
BUCKETS = 512  # as trainer/metrics/curve.h says
SAMPLES = 12  # as trainer/metrics/run_summary.h says
DATASETS = 8
TEXT_BYTES = 1500
MOST_BYTES = 20_000_000
USUAL_BYTES = 300_000


def smoothed(lines: list[dict]) -> list[float]:
    total = weight = 0.0
    found = []
    for line in lines:
        total, weight = SMOOTHING * total + line["loss"], SMOOTHING * weight + 1
        found.append(total / weight)
    return found


def shown(value: float) -> str:
    """Formats a figure as the page does."""
    if 1e-3 <= abs(value) < 1e6:
        return f"{float(f'{value:.6g}'):.10f}".rstrip("0").rstrip(".")
    digits, power = f"{value:.5e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def points(page: Page, plot: str, curve: int = 0) -> list[tuple[float, float]]:
    d = page.locator(f"[data-plot={plot}] .area .curve").nth(curve).get_attribute("d")
    return [tuple(map(float, p.split())) for p in d.removeprefix("M").split("L")]


class Figures(ReportTest):
    def test_every_run_has_its_curve_and_its_figures(self) -> None:
        sizes = {"a": 31, "b": 33, "c": BUCKETS}
        lines = {name: steps(n, n) for name, n in sizes.items()}
        page = self.open(self.make_page(*(self.run_of(name, lines[name]) for name in sizes)))
        self.assertEqual(page.locator("h1").text_content(), "3 runs")
        for plot in PLOTS:
            self.assertEqual(self.n_curves(page, plot), 3)
        for i, name in enumerate(sizes):
            for key in ("loss", "learning_rate", "gradient_norm"):
                series = page.evaluate(f"page.data.runs[{i}].{key}")
                self.assertEqual(series["values"], [line[key] for line in lines[name]])
                self.assertEqual(series["steps"], [line["step"] for line in lines[name]])
        self.show_step(page, 30)
        self.assertEqual(
            self.readouts(page, "smoothed_loss"),
            [[name, f"{shown(smoothed(own)[29])} · {shown(own[29]['loss'])}"]
             for name, own in lines.items()],
        )
        for key in ("learning_rate", "gradient_norm"):
            self.assertEqual(self.readouts(page, key),
                             [[name, shown(lines[name][29][key])] for name in sizes])
        self.show_step(page, 33)  # after the end of the first run
        norms = [shown(own[min(33, len(own)) - 1]["gradient_norm"]) for own in lines.values()]
        self.assertEqual(self.readouts(page, "gradient_norm"),
                         [["a", f"{norms[0]} (at 31)"], ["b", norms[1]], ["c", norms[2]]])

    def test_curves_are_to_scale(self) -> None:
        lines = steps(33, 1)
        page = self.open(self.make_page(self.run_of("a", lines)))
        places = points(page, "gradient_norm")
        self.assertEqual(len(places), 33)
        norms = [line["gradient_norm"] for line in lines]
        low, high = norms.index(min(norms)), norms.index(max(norms))
        scale = (places[high][1] - places[low][1]) / (norms[high] - norms[low])
        self.assertLess(scale, 0)  # upwards
        for i, (x, y) in enumerate(places):
            self.assertAlmostEqual(x, 1000 * i / 32, delta=0.01)
            expected = places[low][1] + scale * (norms[i] - norms[low])
            self.assertAlmostEqual(y, expected, delta=0.02)

    def test_a_logarithmic_scale_is_one(self) -> None:
        lines = steps(1000, 3)[::9]
        page = self.open(self.make_page(self.run_of("a", lines)))
        page.locator("#log-values").check()
        page.locator("#log-steps").check()
        norms = [line["gradient_norm"] for line in lines]
        places = points(page, "gradient_norm")
        low, high = norms.index(min(norms)), norms.index(max(norms))
        scale = (places[high][1] - places[low][1]) / math.log(norms[high] / norms[low])
        for line, (x, y) in zip(lines, places, strict=True):
            share = math.log(line["step"]) / math.log(lines[-1]["step"])
            self.assertAlmostEqual(x, 1000 * share, delta=0.02)
            expected = places[low][1] + scale * math.log(line["gradient_norm"] / norms[low])
            self.assertAlmostEqual(y, expected, delta=0.02)
        ticks = page.locator("[data-plot=gradient_norm] .tick:not(.level)").all_text_contents()
        self.assertEqual(ticks, ["1", "10", "100", "1,000"])
        page.locator("#log-steps").uncheck()
        page.locator("#log-values").uncheck()
        self.assertAlmostEqual(points(page, "gradient_norm")[1][0], 1000 * 9 / 999, delta=0.01)

    def test_values_without_a_logarithm_stay_linear(self) -> None:
        lines = steps(9, 3)
        lines[4]["gradient_norm"] = 0
        page = self.open(self.make_page(self.run_of("a", lines)))
        note = page.locator("[data-plot=gradient_norm] .note", has_text="linear")
        before = points(page, "gradient_norm")
        self.assertFalse(note.is_visible())
        page.locator("#log-values").check()
        self.assertEqual(points(page, "gradient_norm"), before)
        self.assertTrue(note.is_visible())
        self.assertFalse(page.locator("[data-plot=learning_rate] .note").is_visible())

    def test_evaluations_are_dots_in_the_plot_of_the_loss(self) -> None:
        lines = [{**line, "loss": 3.0} for line in steps(11, 1)]
        lines[0]["loss"] = 5.0
        lines[6:6] = [eval_line(6, {"x": 3.0, "y": 4.0})]
        lines.append(eval_line(11, {"x": 5.0}))
        page = self.open(self.make_page(self.run_of("a", lines)))
        dots = page.locator("[data-plot=smoothed_loss] .dots").evaluate_all(
            "all => all.map(path => path.getAttribute('d'))"
        )
        raw = page.locator("[data-plot=smoothed_loss] .raw").get_attribute("d")[1:].split("L")
        five, three = raw[0].split()[1], raw[-1].split()[1]
        self.assertEqual(dots[0], f"M500.00 {three}L500.00 {three}M1000.00 {five}L1000.00 {five}")
        x, y = map(float, dots[1].split("L")[1].split())
        self.assertEqual(x, 500)
        self.assertAlmostEqual(y, (float(five) + float(three)) / 2, delta=0.02)
        page.get_by_role("checkbox", name="a", exact=True).uncheck()
        self.assertEqual(page.locator(".dots").count(), 0)

    def test_labels_lie_neither_under_curves_nor_under_each_other(self) -> None:
        for last, round_ones in ((700, 6), (123_456, 4)):
            lines = steps(700, 2)
            lines[-1]["step"] = last
            made = self.make_page(self.run_of(f"run-{last}", lines))
            for screen in (DESKTOP, PHONE):
                page = self.open(made, **screen)
                for log in (False, True):
                    if log:
                        page.locator("#log-values").check()
                    for plot in PLOTS:
                        self.assert_labels_apart(page, plot)
                if screen is DESKTOP:
                    page.locator("#log-values").uncheck()
                    ticks = page.locator("[data-plot=smoothed_loss] .tick.between").count()
                    self.assertGreaterEqual(ticks, round_ones)

    def assert_labels_apart(self, page: Page, plot: str) -> None:
        boxes = page.locator(f"[data-plot={plot}] .tick").evaluate_all(
            "all => all.filter(node => getComputedStyle(node).display !== 'none').map(node => "
            "[node.classList.contains('level'), node.getBoundingClientRect().toJSON()])"
        )
        area = page.locator(f"[data-plot={plot}] .curves").bounding_box()
        levels = [box for is_level, box in boxes if is_level]
        below = sorted((box for is_level, box in boxes if not is_level),
                       key=lambda box: box["left"])
        self.assertGreaterEqual(len(levels), 2)
        self.assertGreaterEqual(len(below), 2)
        for box in levels:
            self.assertLess(box["right"], area["x"])
            self.assertGreater(box["left"], 0)
        for one, other in itertools.pairwise(below):
            self.assertLess(one["right"], other["left"])
        self.assertGreater(below[0]["top"], area["y"] + 190)

    def test_a_run_that_is_not_ticked_is_not_drawn(self) -> None:
        page = self.open(self.make_page(
            *(self.run_of(name, [*steps(20, seed), eval_line(20, {"x": 2.5})])
              for seed, name in enumerate("abc"))))
        boxes = page.get_by_role("checkbox")
        plots = [*PLOTS, "eval-0"]
        page.get_by_role("checkbox", name="b", exact=True).uncheck()
        for plot in plots:
            self.assertEqual(self.n_curves(page, plot), 2)
            self.assertEqual([name for name, _ in self.readouts(page, plot)], ["a", "c"])
        boxes.nth(0).uncheck()
        boxes.nth(2).uncheck()
        for plot in plots:
            self.assertEqual(self.n_curves(page, plot), 0)
            self.assertIn("Nothing to draw", page.locator(f"[data-plot={plot}]").inner_text())
        boxes.nth(1).check()
        for plot in plots:
            self.assertEqual([name for name, _ in self.readouts(page, plot)], ["b"])

    def test_the_keyboard_reaches_everything(self) -> None:
        page = self.open(self.make_page(self.run_of("a", steps(31, 1)),
                                        self.run_of("b", steps(31, 2))))
        page.get_by_role("checkbox").nth(1).focus()
        page.keyboard.press("Space")
        self.assertEqual(self.n_curves(page, "smoothed_loss"), 1)
        page.locator("#step").focus()
        for key, step in (("Home", 1), ("ArrowRight", 2), ("End", 31), ("ArrowLeft", 30)):
            page.keyboard.press(key)
            self.assertEqual(page.locator("#step-shown").text_content(), str(step))
            said = page.locator("#step").get_attribute("aria-valuetext")
            self.assertEqual(said, f"step {step}")

    def test_the_pointer_chooses_a_step(self) -> None:
        page = self.open(self.make_page(self.run_of("a", steps(101, 1))))
        drawing = page.locator("[data-plot=gradient_norm] .curves")
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
        self.assertEqual(page.locator("#step-shown").text_content(), "51")
        (line,) = page.locator("[data-plot=learning_rate] .cursor-line").all()
        self.assertAlmostEqual(float(line.get_attribute("x1")), 500, delta=0.01)

    def test_a_plot_is_also_a_table(self) -> None:
        lines = steps(33, 5)
        page = self.open(self.make_page(self.run_of("a", lines)))
        page.locator("[data-plot=gradient_norm] summary").click()
        norms = [line["gradient_norm"] for line in lines]
        at = {f(norms): norms.index(f(norms)) + 1 for f in (min, max)}
        self.assertEqual(self.cells(page, "[data-plot=gradient_norm]"), [
            ["a", shown(norms[0]), shown(norms[-1]),
             *(f"{shown(value)} at {step}" for value, step in at.items())]])

    def test_the_table_of_runs_has_their_ends(self) -> None:
        lines = {"a": steps(1, 1), "b": steps(700, 2)}
        page = self.open(self.make_page(*(self.run_of(name, lines[name]) for name in lines)))
        for row, (name, own) in zip(self.cells(page, "#run-table"), lines.items(), strict=True):
            self.assertEqual(row[:4], [name, str(len(own)), shown(own[-1]["loss"]),
                                       shown(smoothed(own)[-1])])
            self.assertEqual(row[-1], "–")

    def test_runs_of_the_same_name_are_told_apart(self) -> None:
        runs = [self.run_of(f"{place}/run", steps(3, 1)) for place in ("x", "y")]
        page = self.open(self.make_page(*runs, runs[0]))
        names = page.locator("#run-table bdi").all_text_contents()
        self.assertEqual(names, [f"{runs[0]} (1)", str(runs[1]), f"{runs[0]} (3)"])


class Sizes(ReportTest):
    def test_a_run_of_one_step_is_a_dot(self) -> None:
        page = self.open(self.make_page(self.run_of("one", steps(1, 3))))
        for plot in PLOTS:
            places = points(page, plot)
            self.assertEqual(places, [places[0]] * 2)
            width = page.locator(f"[data-plot={plot}] .area .curve").evaluate(
                "curve => curve.getBoundingClientRect().left - "
                "curve.closest('svg.curves').getBoundingClientRect().left"
            )
            self.assertGreater(width, 0)
            ticks = page.locator(f"[data-plot={plot}] .tick:not(.level)").all_text_contents()
            self.assertEqual(ticks, ["1"])

    def test_a_run_without_steps_yet_has_a_page(self) -> None:
        page = self.open(self.make_page(self.run_of("none", [])))
        self.assertEqual(self.n_curves(page, "smoothed_loss"), 0)
        self.assertIn("no steps yet", page.locator("#headline").inner_text())

    def test_a_long_run_keeps_its_extremes_and_a_small_page(self) -> None:
        n = 1_000_000 if LONG else 20_000
        lines = steps(n, 7)
        lines[n // 3]["loss"], lines[n // 2]["loss"] = 99.0, -7.0
        made = self.make_page(self.run_of("long", lines))
        self.assertLess(made.stat().st_size, USUAL_BYTES)
        page = self.open(made)
        series = page.evaluate("page.data.runs[0].loss")
        buckets = list(zip(series["steps"], series["lasts"], strict=True))
        self.assertLessEqual(len(buckets), BUCKETS)
        self.assertEqual([first for first, _ in buckets],
                         [1, *(last + 1 for _, last in buckets[:-1])])
        self.assertEqual(buckets[-1][1], n)
        for i, (first, last) in enumerate(buckets):
            losses = [line["loss"] for line in lines[first - 1:last]]
            self.assertEqual(series["least"][i], min(losses))
            self.assertEqual(series["greatest"][i], max(losses))
            self.assertAlmostEqual(series["values"][i], sum(losses) / len(losses), places=9)
        self.assertEqual(page.locator("[data-plot=smoothed_loss] .band").count(), 1)
        self.assertIn("neighbouring", page.locator("#curves-note").inner_text())

    def test_a_page_is_bounded_whatever_the_runs_hold(self) -> None:
        text = "<\x01" * 1000
        lines = []
        for line in steps(2 * BUCKETS, 9):
            step = line["step"]
            line["mfu"] = 1 / 3
            losses = {f"{i}{'<' * 120}": 1 / (step + i) for i in range(DATASETS + 1)}
            lines += [line, eval_line(step, losses)]
            if step % 50 == 0:
                lines.append(sample_line(step, text, text))
        run = self.run_of("full", lines)
        made = self.make_page(*[run] * RUNS)
        self.assertLess(made.stat().st_size, MOST_BYTES)
        page = self.open(made)
        self.assertEqual(page.locator("#samples article").count(), SAMPLES * RUNS)
        self.assertEqual(page.locator("#evaluation figure").count(), DATASETS)
        self.assertIn("Not all datasets", page.locator("#evaluation-note").inner_text())
        for plot in [*PLOTS, "mfu", "eval-7"]:
            self.assertEqual(self.n_curves(page, plot), RUNS)

    def test_a_run_that_goes_on_is_shown_as_far_as_it_is(self) -> None:
        lines = steps(33, 4)
        half = json.dumps(lines[-1])
        runs = [self.run_of(f"cut-{cut}", lines[:-1], half[:cut].encode())
                for cut in (0, 1, 20, len(half))]
        page = self.open(self.make_page(*runs))
        self.assertEqual(page.evaluate("page.data.runs.map(run => run.last_step)"), [32] * 4)

    def test_files_of_other_versions_are_shown(self) -> None:
        new_keys = {"used", "pairs", "flop"}
        old = [{key: line[key] for key in line.keys() - new_keys} for line in steps(9, 1)]
        new = [{**line, "colour": "red"} for line in steps(9, 1)]
        new.insert(3, {"event": "weather", "step": 3, "values": "rain"})
        page = self.open(self.make_page(self.run_of("old", old), self.run_of("new", new)))
        self.assertEqual(self.n_curves(page, "tokens_per_second"), 2)
        self.assertEqual(self.n_curves(page, "flops"), 1)

    def test_awkward_numbers_are_drawn(self) -> None:
        kinds = {
            "equal": [2.5, 2.5, 2.5], "nearly": [1.0, 1.0 + 2**-52, 1.0], "zero": [0, 0, 0],
            "huge": [1e100, -1e100, 0], "tiny": [5e-324, 1e-320, 0],
            "mixed": [1e-300, 1e99, -1],
        }
        for name, losses in kinds.items():
            lines = steps(3, 1)
            for line, loss, step in zip(lines, losses, (1, 2, 2**53 - 1), strict=True):
                line.update(loss=loss, step=step)
            page = self.open(self.make_page(self.run_of(name, lines)))
            self.assertEqual(page.evaluate("page.data.runs[0].loss.values"), losses)
            self.assertEqual(len(points(page, "smoothed_loss")), 3)
            levels = page.locator("[data-plot=smoothed_loss] .level").count()
            self.assertTrue(1 <= levels <= 8, levels)

    def test_steps_without_targets_or_numbers_are_left_out(self) -> None:
        lines = steps(5, 1)
        lines[1].update(targets=0, loss=0)
        lines[2].update(loss=None, gradient_norm=None)
        lines[3].update(seconds=0)
        page = self.open(self.make_page(self.run_of("a", lines)))
        for key, left in (("loss", [1, 4, 5]), ("gradient_norm", [1, 2, 4, 5]),
                          ("tokens_per_second", [1, 2, 3, 5])):
            self.assertEqual(page.evaluate(f"page.data.runs[0].{key}.steps"), left)


class Contents(ReportTest):
    def test_evaluations_are_curves_of_their_datasets(self) -> None:
        a = [*steps(10, 1), eval_line(10, {"x": 3.25, "y": 4.5})]
        b = [eval_line(0, {"x": 6.5}), *steps(10, 2), eval_line(10, {"x": 2.125})]
        page = self.open(self.make_page(self.run_of("a", a), self.run_of("b", b)))
        titles = page.locator("#evaluation h3").all_text_contents()
        self.assertEqual(titles, ["x", "y"])
        self.assertEqual([self.n_curves(page, f"eval-{i}") for i in (0, 1)], [2, 1])
        self.show_step(page, 10)
        self.assertEqual(self.readouts(page, "eval-0"), [["a", "3.25"], ["b", "2.125"]])
        self.show_step(page, 4)
        self.assertEqual(self.readouts(page, "eval-0"), [["a", "–"], ["b", "6.5"]])

    def test_samples_are_shown_latest_first(self) -> None:
        lines = [*steps(1, 1)]
        for step in range(1, SAMPLES + 4):
            lines.append(sample_line(step, "Once ", f"upon {step}\n  a time"))
        lines.append(sample_line(SAMPLES + 4, "", "é" * TEXT_BYTES))
        page = self.open(self.make_page(self.run_of("a", lines)))
        articles = page.locator("#samples article")
        self.assertEqual(articles.count(), SAMPLES)
        self.assertEqual(articles.nth(0).locator(".text").text_content(),
                         "é" * (TEXT_BYTES // 2))
        self.assertIn("It goes on", articles.nth(0).inner_text())
        self.assertEqual(articles.nth(1).locator("h4").text_content(), f"Step {SAMPLES + 3}")
        self.assertEqual(articles.nth(1).locator(".text").text_content(),
                         f"Once upon {SAMPLES + 3}\n  a time")
        note = page.locator("#samples .note").nth(1).inner_text()
        self.assertEqual(note, f"The latest {SAMPLES} of {SAMPLES + 4}")

    def test_settings_that_differ_are_listed(self) -> None:
        runs = []
        for name, rate in (("a", "0.001"), ("b", "0.004")):
            runs.append(self.folder / name)
            self.succeeds("train", "-q", "--data", DATASET, "-o", runs[-1], *MODEL,
                          "--steps", 3, "--learning-rate", rate)
        page = self.open(self.make_page(*runs))
        self.assertEqual(self.cells(page, "#settings-tables > :nth-child(1)"),
                         [["training.learning_rate", "0.001", "0.004"]])
        page.locator("#settings summary").click()
        everything = {row[0]: row[1:] for row in self.cells(page, "#settings details")}
        self.assertEqual(everything["training.steps"], ["3", "3"])
        self.assertEqual(everything["data.seq_len"], ["64", "64"])
        for run, row in zip(runs, self.cells(page, "#run-table"), strict=True):
            last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
            self.assertEqual([*row[1:3], row[-1]], ["3", shown(last["loss"]), "3"])

    def test_a_run_that_is_not_done_tells_how_far_it_is(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *MODEL, "--steps", 4,
                      "--save-every", 3)
        for path in run.glob("step-00000004.*"):
            path.unlink()
        metrics = run / "metrics.jsonl"
        metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:3]))
        page = self.open(self.make_page(run))
        (row,) = self.cells(page, "#run-table")
        self.assertEqual(row[1], "3 of 4")
        self.assertRegex(page.locator("#headline").inner_text(), r"Steps\s+3\s+of 4\n")

    def test_mfu_is_drawn_where_it_is_known(self) -> None:
        known = [{**line, "mfu": 0.3456} for line in steps(4, 1)]
        page = self.open(self.make_page(self.run_of("a", known), self.run_of("b", steps(4, 2))))
        self.assertEqual(self.readouts(page, "mfu"), [["a", "34.56 %"]])


if __name__ == "__main__":
    program.main()
