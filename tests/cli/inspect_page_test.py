"""`bindery inspect --html` in a real browser: the page shows the data of --json and the text of
the corpus."""

import json
import random
import re
import shutil
from pathlib import Path

import program
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizer_shapes as shapes
from browser import PHONE
from inspected_page import FORMAT_1, MASKED_FIELDS, SEPARATOR, InspectPageTest, some_texts
from playwright.sync_api import Page
from reference_test_case import dataset_rows

PAGE_ROWS = 32  # as packer/inspect/inspection_page.h and inspection_page_rows.h say
PAGE_ROW_TOKENS = 4096
PAGE_SEGMENTS = 96
PAGE_SHARDS = 1000
SHARD_GROUPS = 64
MOST_BYTES = 10_000_000
USUAL_BYTES = 1_000_000


def first_number(label: str) -> int:
    """From "8 to 15 tokens: 1,234 documents, 5 %" returns 1234."""
    return int(re.search(r": (?:about )?([\d,]+)", label)[1].replace(",", ""))


def number(text: str) -> int:
    return int(text.replace(",", ""))


class Figures(InspectPageTest):
    def datasets(self) -> dict[str, tuple[Path, list[str]]]:
        a = self.corpus("a.jsonl", some_texts(1, 150))
        b = self.corpus("b.jsonl", some_texts(2, 31))
        sources = ["--source", f"x={a}", "--source", f"y={b}"]
        many = self.corpus("many.jsonl", some_texts(3, 700))
        spelled = self.corpus("spelled.jsonl", ["<|endoftext|>", "<b>x<|endoftext|>"])
        tokens = [shapes.added(256, "<|endoftext|>"), shapes.added(257, "<b>", special=False)]
        tokenizer = self.write("tokenizer.json", json.dumps(shapes.bytes_only(tokens)).encode())
        return {
            "sources": (self.pack(self.folder / "sources", [], "--seq-len", 33, *sources),
                        ["--scan", "--duplicates"]),
            "sampled": (self.pack(self.folder / "sampled", [many], "--seq-len", 65,
                                  "--unit-size", "2K", "--compress", "zstd"),
                        ["--duplicates", "--memory", 0]),
            "added": (self.pack(self.folder / "added", [spelled], "--seq-len", 33, "--tokenizer",
                                tokenizer, "--special-tokens", "token"), ["--scan"]),
            "truncated": (FORMAT_1 / "truncate", []),
            "selected": (FORMAT_1 / "selected", ["--scan"]),
        }

    def check_plots(self, page: Page, found: dict) -> None:
        figures = found["figures"]
        for plot, values in (
            ("document-lengths", figures["document_length_histogram"]),
            ("segments-per-row", figures["segments_per_row_histogram"]),
            ("padding-per-row", found["padding_per_row"]["histogram"]),
            ("frequent-tokens", [token["count"] for token in found["tokens"]["frequent"]]),
            ("attention", [found["attention"]["pairs"],
                           *(tile["visited"] for tile in found["attention"]["tiles"])]),
        ):
            self.assertEqual([first_number(s) for s in self.labels(page, plot)], values, plot)
        added = found["tokens"]["added"]
        self.assertEqual(self.labels(page, "added-tokens") if added else [],
                         [f"“{t['text']}”, id {t['id']}: {t['count']}" for t in added])
        self.assertEqual(
            self.labels(page, "sources"),
            [f"{source['name']}: {100 * source['share']:.1f} %, "
             f"{source['figures']['packed']:,} tokens, "
             f"{source['figures']['documents']:,} documents, "
             f"{source['inputs']} input{'' if source['inputs'] == 1 else 's'}"
             for source in found["sources"]],
        )
        self.check_bars_are_to_scale(page, figures["document_length_histogram"])

    def check_bars_are_to_scale(self, page: Page, values: list[int]) -> None:
        heights = page.locator("[data-plot=document-lengths] .mark").evaluate_all(
            "marks => marks.map(mark => mark.getBoundingClientRect().height)"
        )
        for height, value in zip(heights, values, strict=True):
            exact = max(heights) * value / max(values)
            self.assertAlmostEqual(height, max(exact, 1.5 if value else 0), delta=0.1)

    def check_tables(self, page: Page, found: dict) -> None:
        figures = found["figures"]
        for side, names in enumerate((
            ["text", "bos", "separators", "repeated"],
            ["packed", "truncated", "dropped", "too_short", "held_out"],
        )):
            cells = self.cells(page, f"#ledger-cards > :nth-child({side + 1})")
            expected = [figures[name] for name in names]
            self.assertEqual([number(row[1]) for row in cells], [*expected, sum(expected)])
        shards = [
            [row[0], *map(number, row[1:6]), row[6]] for row in self.cells(page, "#shard-table")
        ]
        keys = ("file", "rows", "documents", "tokens", "padding", "bytes", "checksum")
        self.assertEqual(shards, [[shard[key] for key in keys] for shard in found["shards"]])
        rows = sum(first_number(label) for label in self.labels(page, "rows-over-shards"))
        self.assertEqual(rows, figures["rows"])

    def check_headline(self, page: Page, found: dict) -> None:
        figures = found["figures"]
        cells = found["packing"]["seq_len"] * figures["rows"]
        shown = page.locator("#headline strong").all_text_contents()
        self.assertEqual(shown, [
            *(f"{figures[key]:,}" for key in ("rows", "documents", "packed")),
            *(f"{100 * figures[key] / cells:.1f} %" for key in ("targets", "padding")),
            f"{100 * found['attention']['saved']:.1f} %",
        ])

    def check_duplicates(self, page: Page, found: dict) -> None:
        duplicates = found["duplicates"]
        self.assertEqual(page.locator("#duplicates").is_visible(), duplicates is not None)
        if duplicates is None:
            return
        text = page.locator("#duplicates").inner_text()
        self.assertIn(f"{duplicates['distinct']:,}", text)
        self.assertIn(f"{duplicates['repeated']:,}", text)
        self.assertEqual("about" in text, not duplicates["exact"])
        cells = self.cells(page, "#duplicates-cards")
        self.assertEqual([number(row[1]) for row in cells],
                         [document["count"] for document in duplicates["most_repeated"]])

    def test_the_page_shows_the_figures_of_json(self) -> None:
        for name, (dataset, options) in self.datasets().items():
            with self.subTest(name):
                found = self.inspection(dataset, *options)
                page = self.open(self.make_page(dataset, *options))
                self.assertEqual(
                    page.evaluate("page.data.inspection"), {**found, "inputs": []}
                )
                self.check_plots(page, found)
                self.check_tables(page, found)
                self.check_headline(page, found)
                self.check_duplicates(page, found)
                marked = page.locator("#documents, #attention, #contents").all_inner_texts()
                about = any(re.search("(?i)about", text) for text in marked)
                self.assertEqual(about, found["reading"]["how"] == "sample")

    def test_every_plot_is_also_a_table(self) -> None:
        page = self.open(self.make_page(FORMAT_1 / "concat"))
        plots = page.locator("figure.plot")
        self.assertEqual(plots.count(), 7)
        for i in range(plots.count()):
            bars = plots.nth(i).locator(".bar")
            labels = bars.evaluate_all("all => all.map(b => b.getAttribute('aria-label'))")
            plots.nth(i).locator("summary").click()
            rows = plots.nth(i).locator("tbody tr").evaluate_all(
                "rows => rows.map(row => [...row.cells].map(c => c.textContent).join(': '))"
            )
            self.assertEqual(rows, labels)

    def test_a_thousand_shards_stay_readable(self) -> None:
        corpus = self.corpus("many.jsonl", [f"document {i}" * 4 for i in range(2000)])
        dataset = self.pack(self.folder / "many", [corpus], "--seq-len", 64, "--unit-size", 100)
        found = self.inspection(dataset)
        n = len(found["shards"])
        self.assertGreater(n, PAGE_SHARDS)
        page = self.open(self.make_page(dataset))
        self.assertEqual(len(self.cells(page, "#shard-table")), PAGE_SHARDS)
        self.assertIn(f"first 1,000 of {n:,} shards", page.locator("#shards-note").inner_text())
        labels = self.labels(page, "rows-over-shards")
        self.assertLessEqual(len(labels), SHARD_GROUPS)
        self.assertEqual(sum(map(first_number, labels)), found["figures"]["rows"])


class Rows(InspectPageTest):
    def setUp(self) -> None:
        super().setUp()
        self.texts = some_texts(4, 400)
        self.path = self.corpus("a.jsonl", self.texts)

    def records(self) -> dict[int, bytes]:
        """Returns the text of each document by its place in the corpus."""
        found, place = {}, 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            found[place] = json.loads(line)["text"].encode()
            place += len(line)
        return found

    def expected_text(self, position: int, offset: int, n: int) -> str:
        """Returns the page's text for `n` tokens of a document, which are bytes and a separator."""
        document = self.records()[position]
        text = document[offset:offset + n].decode(errors="replace")
        return text + (SEPARATOR if offset + n > len(document) else "")

    def check_row(self, page: Page, dataset: Path) -> int:
        """Compares every document of the open row with the corpus; returns how many there are."""
        title = page.locator("#row-detail h3").inner_text()
        row = number(title.removeprefix("Row "))
        blocks = page.locator("#row-detail article")
        shown = self.succeeds("inspect", "--row", row, dataset).stdout
        places = re.findall(r"^--- tokens (\d+) to (\d+): a.jsonl byte (\d+), "
                            r"(?:whole|tokens (\d+))", shown, re.MULTILINE)
        self.assertEqual(blocks.count(), len(places))
        for i, (first, last, position, offset) in enumerate(places):
            block = blocks.nth(i)
            heading = block.locator("h4").text_content()
            self.assertEqual(heading, f"{i + 1} · a.jsonl, byte {int(position):,}")
            self.assertIn(f"Tokens {int(first):,} to {int(last):,} of the row",
                          block.locator(".note").first.inner_text())
            n = int(last) - int(first) + 1
            self.assertEqual(block.locator(".text").text_content(),
                             self.expected_text(int(position), int(offset or 0), n))
        return len(places)

    def test_clicking_a_row_shows_its_documents_as_the_corpus_has_them(self) -> None:
        for name, options in (("plain", []), ("zstd", ["--compress", "zstd"])):
            options = ["--seq-len", 129, "--unit-size", "8K", *options]
            dataset = self.pack(self.folder / name, [self.path], *options)
            page = self.open(self.make_page(dataset))
            buttons = page.locator("#row-list button")
            self.assertIn(buttons.count(), range(PAGE_ROWS // 2, PAGE_ROWS + 1))
            n = 0
            for i in range(0, buttons.count(), 3):
                buttons.nth(i).click()
                self.assertEqual(page.locator("[aria-current]").count(), 1)
                n += self.check_row(page, dataset)
            self.assertGreater(n, buttons.count() // 3)

    def test_rows_are_spread_evenly_and_drawn_to_scale(self) -> None:
        dataset = self.pack(self.folder / "a", [self.path], "--seq-len", 129)
        rows = self.inspection(dataset)["figures"]["rows"]
        page = self.open(self.make_page(dataset))
        shown = page.locator("#row-list button span").all_text_contents()
        self.assertEqual([number(text.removeprefix("Row ")) for text in shown],
                         [rows * (2 * i + 1) // (2 * PAGE_ROWS) for i in range(PAGE_ROWS)])
        for i, row in enumerate(page.evaluate("page.data.sample.rows")):
            strip = page.locator("#row-list .strip").nth(i)
            widths = strip.evaluate(
                "strip => [...strip.querySelectorAll('rect')].map(rect => "
                "rect.width.baseVal.value / strip.clientWidth)"
            )
            tokens = [segment["to"] - segment["from"] for segment in row["segments"]]
            if row["used"] < 129:
                tokens.append(129 - row["used"])
            self.assertEqual(len(widths), len(tokens))
            for width, n in zip(widths, tokens):
                self.assertAlmostEqual(width, n / 129, places=4)

    def test_a_token_tells_its_position_document_source_and_target(self) -> None:
        path = self.corpus("b.jsonl", ["héllo", "abc" * 20])
        dataset = self.pack(self.folder / "b", [], "--seq-len", 31, "--source", f"prose={path}")
        page = self.open(self.make_page(dataset))
        status = page.locator(".status")
        segments = page.evaluate("page.data.sample.rows[0].segments")
        index = next(i for i, segment in enumerate(segments) if segment["length"] == 7)
        start = segments[index]["from"]
        tokens = page.locator("#row-detail article").nth(index).locator(".t")
        for i, expected in (
            (0, [f"Token {start} of the row", "id 104", "position 0 in",
                 "token 0 of its document", "source prose", "no target"]),
            (1, [f"Tokens {start + 1} to {start + 2} of the row", "id 195, id 169",
                 "a target"]),
            (2, ["id 108", f"position 3 in segment {index + 1}", "a target"]),
            (5, ["id 256, separator", "token 6 of its document", "a target"]),
        ):
            tokens.nth(i).hover()
            for part in expected:
                self.assertIn(part, status.inner_text())

    def test_masked_text_is_dimmed(self) -> None:
        """Token by token, as pyarrow reads the mask."""
        path = self.masked_corpus("m.jsonl", ["héllo", "", "abc" * 20, "x\ny"])
        options = ["--seq-len", 31, "--long", "split", *MASKED_FIELDS]
        dataset = self.pack(self.folder / "m", [], "--source", f"prose={path}", *options)
        page = self.open(self.make_page(dataset))
        self.assertIn("Dimmed text is masked", page.locator("#rows-note").inner_text())
        rows = [row for rows in dataset_rows(dataset).values() for row in rows]
        n_of = {True: 0, False: 0}
        for number, (_, bounds, _, mask) in enumerate(rows):
            page.locator("#row-list button").nth(number).click()
            for k, (begin, end) in enumerate(zip(bounds, bounds[1:])):
                block = page.locator("#row-detail article").nth(k)
                targets = sum(mask[begin:end])
                many = "" if targets == 1 else "s"
                self.assertIn(f"{targets} target{many}, {end - begin - 1 - targets} masked",
                              block.locator(".note").first.inner_text())
                at = begin
                for token in block.locator(".t").all():
                    text = token.text_content()
                    n = 1 if text.startswith("⟨") or text == "\ufffd" else len(text.encode())
                    is_masked = "masked" in token.get_attribute("class").split()
                    self.assertEqual(is_masked, not any(mask[at : at + n]), (number, k, at))
                    n_of[is_masked] += 1
                    at += n
                self.assertEqual(at, end)
        self.assertGreater(min(n_of.values()), 10)
        page.locator("#row-list button").first.click()
        for token, words in ((page.locator("#segment-1 .t").first, "the first of its segment"),
                             (page.locator("#segment-1 .t.masked").nth(1), "no target: masked"),
                             (page.locator(".t:not(.masked)").first, "· a target")):
            token.hover()
            self.assertIn(words, page.locator(".status").inner_text())

    def test_sources_tell_what_is_trained(self) -> None:
        arguments = []
        for name, texts in (("prose", ["héllo"] * 9), ("code", ["abc" * 20])):
            path = self.masked_corpus(f"{name}.jsonl", texts)
            arguments += ["--source", f"{name}={path}"]
        dataset = self.pack(self.folder / "m", arguments, "--seq-len", 99, *MASKED_FIELDS)
        labels = " ".join(self.labels(self.open(self.make_page(dataset)), "sources"))
        for source in self.inspection(dataset)["sources"]:
            figures = source["figures"]
            share = figures["targets"] / (figures["targets"] + figures["masked"])
            shown = re.search(rf"{figures['targets']} targets \(([\d.]+) ?%\), "
                              rf"{figures['masked']} masked \(([\d.]+) ?%\)", labels)
            self.assertIsNotNone(shown, labels)
            self.assertAlmostEqual(float(shown[1]), 100 * share, delta=0.06)
            self.assertAlmostEqual(float(shown[2]), 100 - 100 * share, delta=0.06)

    def test_a_page_without_masks_says_nothing_of_them(self) -> None:
        dataset = self.pack(self.folder / "a", [self.path], "--seq-len", 129)
        page = self.open(self.make_page(dataset))
        self.assertNotIn("masked", page.locator("body").inner_text())
        self.assertEqual(page.locator(".masks, .masked").count(), 0)
        segments = page.evaluate("page.data.sample.rows[0].segments")
        self.assertNotIn("trained", segments[0])

    def test_the_keyboard_is_enough(self) -> None:
        dataset = self.pack(self.folder / "a", [self.path], "--seq-len", 129)
        page = self.open(self.make_page(dataset))
        focused = "document.activeElement.{}"

        def tab_to(selector: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                if page.evaluate(focused.format(f"matches({selector!r})")):
                    return
            self.fail(f"the tab key does not lead to {selector}")

        tab_to(".bar")
        first = page.evaluate(focused.format("getAttribute('aria-label')"))
        page.keyboard.press("ArrowRight")
        second = page.evaluate(focused.format("getAttribute('aria-label')"))
        self.assertEqual(self.labels(page, "document-lengths")[:2], [first, second])
        self.assertEqual(page.locator(".readout").first.inner_text(), second)

        tab_to("#row-list button")
        shown = page.locator("#row-list button span").all_text_contents()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        self.assertEqual(page.locator("#row-detail h3").inner_text(), shown[1])
        page.keyboard.press("End")
        page.keyboard.press("Space")
        self.assertEqual(page.locator("#row-detail h3").inner_text(), shown[-1])
        self.check_row(page, dataset)

        tab_to("#row-detail .text")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        chosen = "all => all.flatMap((t, i) => t.classList.contains('chosen') ? [i] : [])"
        self.assertEqual(page.locator("#segment-1 .t").evaluate_all(chosen), [2])
        self.assertIn("in segment 1", page.locator(".status").inner_text())

    def test_rows_without_space_are_left_out_and_counted(self) -> None:
        rng = random.Random(5)
        lists = [rng.choices(range(70_000), k=1) for _ in range(40_000)]
        lists += [rng.choices(range(70_000), k=9_000) for _ in range(30)]
        path = self.folder / "ids.parquet"
        pq.write_table(pa.table({"input_ids": pa.array(lists, pa.list_(pa.uint32()))}), path)
        dataset = self.pack(self.folder / "ids", [path], "--seq-len", 8192,
                            "--vocab-size", 70_001, "--separator-id", 70_000)
        made = self.make_page(dataset)
        self.assertLess(made.stat().st_size, MOST_BYTES)
        page = self.open(made)
        seen: set[int] = set()  # one row of each kind is enough
        for row in page.evaluate("page.data.sample.rows"):
            segments = row["segments"]
            self.assertEqual(len(segments), min(row["n_segments"], PAGE_SEGMENTS))
            lengths = [segment["to"] - segment["from"] for segment in segments]
            most = max(n for n in range(PAGE_ROW_TOKENS + 1)
                       if sum(min(length, n) for length in lengths) <= PAGE_ROW_TOKENS)
            self.assertEqual([len(segment["ids"]) for segment in segments],
                             [min(length, most) for length in lengths])
            if row["n_segments"] in seen:
                continue
            seen.add(row["n_segments"])
            name = re.compile(f"^Row {row['row']:,}$")
            page.locator("#row-list button", has_text=name).click()
            detail = page.locator("#row-detail").inner_text()
            for what, left in (("segment", row["n_segments"] - len(segments)),
                               ("token", segments[0]["to"] - len(segments[0]["ids"]))):
                note = f"and {left:,} {what}{'' if left == 1 else 's'} more, not in this page"
                self.assertEqual(note in detail, left > 0)
        self.assertGreater(len(seen), 1)

    def test_a_page_of_an_ordinary_dataset_is_small(self) -> None:
        path = self.corpus("large.jsonl", some_texts(6, 9000))
        dataset = self.pack(self.folder / "large", [path], "--seq-len", 2048)
        self.assertLess(self.make_page(dataset).stat().st_size, USUAL_BYTES)


class Small(InspectPageTest):
    def test_a_shard_alone(self) -> None:
        alone = self.folder / "alone.arrow"
        shutil.copy(FORMAT_1 / "best-fit" / "00000-00000.arrow", alone)
        page = self.open(self.make_page(alone, "--scan", "--duplicates"))
        self.assertEqual(page.locator("h1").inner_text(), "alone.arrow")
        self.assertEqual(self.labels(page, "sources"), [])
        self.assertIn("manifest", page.locator("[data-plot=sources] .nothing").inner_text())
        self.assertEqual(self.cells(page, "#shard-table")[0][0], "alone.arrow")
        self.assertEqual(self.cells(page, "#shard-table")[0][6], "in the manifest")
        self.assertIn("input 0, position", page.locator("article h4").first.inner_text())
        self.assertGreater(len(page.locator(".text").first.inner_text()), 0)

    def test_a_dataset_without_rows(self) -> None:
        path = self.corpus("two.jsonl", ["one", "two"])
        dataset = self.pack(self.folder / "a", [path], "--holdout", "0.01%") / "holdout"
        self.assertEqual(self.inspection(dataset)["figures"]["rows"], 0)
        page = self.open(self.make_page(dataset, "--scan", "--duplicates"), **PHONE)
        self.assertEqual(page.locator("#headline strong").first.inner_text(), "0")
        self.assertEqual(page.locator("#rows-note").inner_text(), "There are no rows.")
        self.assertEqual(self.labels(page, "document-lengths"), [])
        self.assertEqual(page.locator("#row-list").count(), 0)
        self.assertNotIn("NaN", page.locator("body").inner_text())

    def test_documents_and_rows_of_awkward_sizes(self) -> None:
        for n, texts in enumerate((["x" * 31], [""], ["a"], ["x" * 30, "y" * 33], ["z" * 62])):
            path = self.corpus(f"{n}.jsonl", texts)
            dataset = self.pack(self.folder / f"of-{n}", [path], "--seq-len", 31)
            page = self.open(self.make_page(dataset))
            shown = "".join(page.locator(".text").all_text_contents())
            self.assertGreater(len(shown), 0)
            self.assertLessEqual(set(shown), set("".join(texts) + SEPARATOR))


if __name__ == "__main__":
    program.main()
