"""The data in pages of `inspect --html` and `report`, without a browser: so a sanitizer can watch
how they are made. The page tests check how a browser shows them."""

import json
import re
import shutil
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery
from run_files import RUNS, eval_line, sample_line, steps, write_run

FORMAT_1 = ROOT / "tests" / "golden" / "format-1"
# A page has fewer entries of these than --json, which names every file.
SHORTENED = {"inputs", "sources", "shards"}
HOSTILE = "</script><script>alert(1)</script><!-- \u2028 é 語"


def data_of(page: Path) -> dict:
    """Returns the data for the page's scripts; exactly one element has it, whatever the data
    say."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>',
                         page.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(data)


class Inspected(ProgramTest):
    def check(self, dataset: Path, *options: object) -> dict:
        path = self.folder / "page.html"
        self.succeeds("inspect", *options, "--overwrite", "--html", path, dataset)
        expected = json.loads(self.succeeds("inspect", "--json", *options, dataset).stdout)
        data = data_of(path)
        for key in expected.keys() - SHORTENED:
            self.assertEqual(data["inspection"][key], expected[key], key)
        return data

    def test_the_data_of_a_page_are_those_of_json(self) -> None:
        for name in ("best-fit", "concat", "truncate", "selected"):
            for options in ([], ["--scan", "--duplicates"], ["--duplicates", "--memory", 0]):
                with self.subTest(name, options=options):
                    self.check(FORMAT_1 / name, *options)

    def test_a_shard_alone_has_a_page(self) -> None:
        alone = self.folder / "alone.arrow"
        shutil.copy(FORMAT_1 / "best-fit" / "00000-00000.arrow", alone)
        self.check(alone, "--scan", "--duplicates")

    def test_documents_of_awkward_sizes_and_words_have_a_page(self) -> None:
        for n, texts in enumerate((["x" * 31], [""], ["a"], ["x" * 30, "y" * 33], ["z" * 62],
                                   [HOSTILE], ["one", "two"])):
            corpus = self.folder / f"{n}.jsonl"
            corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
            dataset = self.pack(self.folder / f"of-{n}", [corpus], "--seq-len", 31,
                                "--holdout", "0.01%")
            rows = self.check(dataset)["sample"]["rows"]
            self.assertGreater(len(rows), 0)
            self.assertEqual(self.check(dataset / "holdout")["sample"]["rows"], [])


class Reported(ProgramTest):
    def run_of(self, name: str, lines: list[dict], more: bytes = b"") -> Path:
        return write_run(self.folder / name, lines, more)

    def report(self, *runs: Path) -> list[dict]:
        path = self.folder / "report.html"
        self.said = self.succeeds("report", *runs, "-o", path, "--overwrite").stderr
        return data_of(path)["runs"]

    def refused(self, *runs: object) -> str:
        path = self.folder / "refused.html"
        result = bindery("report", *runs, "-o", path)
        self.assertEqual(result.status, 2, result)
        self.assertFalse(path.exists())
        return result.stderr

    def test_runs_of_any_length_have_a_page(self) -> None:
        lengths = (0, 1, 31, 512, 513, 2000)
        runs = self.report(*(self.run_of(f"of-{n}", steps(n, n)) for n in lengths))
        self.assertEqual([run["last_step"] for run in runs], list(lengths))

    def test_texts_of_any_kind_stay_data(self) -> None:
        lines = [*steps(3, 1), eval_line(3, {HOSTILE: 1.5}), sample_line(3, HOSTILE, HOSTILE)]
        (run,) = self.report(self.run_of("hostile", lines))
        self.assertIn(HOSTILE, json.dumps(run, ensure_ascii=False))

    def test_faults_in_metrics_are_named_with_their_line(self) -> None:
        for i, (bad, why) in enumerate((
            ("garbage", "not valid JSON"),
            ('{"step": 32, "loss": NaN}', "not valid JSON"),
            ('{"step": 32}', "'learning_rate'"),
            ('{"step": 0, "loss": 1}', "'step'"),
            ('{"step": -1}', "'step'"),
            ('{"step": 9007199254740993}', "'step'"),
            ('{"event": "eval", "step": 40, "values": {}}', "'values' is not an array"),
            ('{"event": "sample", "step": 40, "values": [{"prompt": 1}]}', "'prompt'"),
            ("x" * 20_000_000, "longer than"),
        )):
            run = self.run_of(f"bad-{i}", steps(31, 1), bad.encode() + b"\n")
            (shown,) = self.report(run)
            self.assertEqual(shown["last_step"], 31)
            self.assertIn(f"is left out: '{run}/metrics.jsonl', line 32: ", self.said)
            self.assertIn(why, self.said)
            (run / "metrics.jsonl").write_text(f"{bad}\n{bad}\n")
            self.assertIn("metrics.jsonl', line 1: ", self.refused(run))

    def test_a_folder_that_is_no_run_is_refused(self) -> None:
        self.assertIn("metrics.jsonl", self.refused(self.folder))
        self.assertIn("absent", self.refused(self.folder / "absent"))
        run = self.run_of("run", steps(1, 1))
        (run / "step-00000001.json").write_text("{}")
        self.assertIn("step-00000001.json", self.refused(run))

    def test_more_runs_than_can_be_told_apart_are_refused(self) -> None:
        run = self.run_of("run", steps(1, 1))
        self.assertIn("at most 16 runs", self.refused(*[run] * (RUNS + 1)))

    def test_a_file_that_is_there_is_replaced_only_if_asked(self) -> None:
        run = self.run_of("run", steps(1, 1))
        path = self.folder / "report.html"
        path.write_bytes(b"mine")
        result = bindery("report", run, "-o", path)
        self.assertEqual(result.status, 2, result)
        self.assertIn("--overwrite", result.stderr)
        self.assertEqual(path.read_bytes(), b"mine")


if __name__ == "__main__":
    program.main()
