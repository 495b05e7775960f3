"""Training on several datasets: mixed by their weights, resumed exactly, and refused if they do
not fit together."""

import json
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery
from schemas import validate

CORPUS = ROOT / "tests" / "golden" / "train-1" / "corpus"
MODEL = ["--layers", "1", "--channels", "32", "--heads", "4", "--positions", "64", "--batch", 3]
WEIGHTS = (0.7, 0.3)


class Mixture(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.first = self.packed("first", 64)
        self.second = self.packed("second", 64, "--strategy", "concat")

    def packed(self, name: str, seq_len: int, *options: object) -> Path:
        return self.pack(self.folder / name, [CORPUS], "--seq-len", seq_len, *options)

    def arguments(self, run: Path, *options: object, weights: tuple = WEIGHTS) -> list:
        data = [f"{self.first}:{weights[0]}", f"{self.second}:{weights[1]}"]
        return ["train", "-q", "--data", data[0], "--data", data[1], "-o", run, *MODEL, *options]

    def test_a_resumed_mixture_is_the_one_that_did_not_stop(self) -> None:
        whole, stopped = self.folder / "whole", self.folder / "stopped"
        steps = ["--steps", 12, "--save-every", 5]
        self.succeeds(*self.arguments(whole, *steps))
        self.succeeds(*self.arguments(stopped, *steps))
        for path in stopped.glob("step-0000001*"):
            path.unlink()  # as if it had ended after step 5
        self.succeeds(*self.arguments(stopped, *steps, "--resume", stopped))
        name = "step-00000012.safetensors"
        self.assertEqual((whole / name).read_bytes(), (stopped / name).read_bytes())
        step = json.loads((whole / "step-00000012.json").read_text())
        validate(step, "checkpoint")
        self.assertEqual([d["share"] for d in step["data"]["datasets"]], [717, 307])

    def test_a_dataset_without_anything_to_predict_is_named(self) -> None:
        corpus = self.folder / "empty.jsonl"
        corpus.write_text('{"text": ""}\n' * 40)
        empty = self.pack(self.folder / "empty", [corpus], "--seq-len", 64)
        run, named = self.folder / "run", f"nothing in '{empty}' can be predicted: its 40 documents"
        for data in ([empty], [f"{self.first}:1", f"{empty}:1"]):
            options = [word for name in data for word in ("--data", name)]
            result = bindery("train", *options, "-o", run, *MODEL, "--steps", 1)
            self.assertEqual(result.status, 2, result)
            self.assertIn(named, result.stderr)
            self.assertFalse(run.exists())
        self.succeeds(*self.arguments(run, "--steps", 1))
        result = bindery("eval", run, empty)
        self.assertEqual(result.status, 2, result)
        self.assertIn(named, result.stderr)

    def test_other_weights_are_not_resumed(self) -> None:
        run = self.folder / "run"
        self.succeeds(*self.arguments(run, "--steps", 2))
        result = bindery(*self.arguments(run, "--steps", 2, "--resume", run, weights=(0.6, 0.4)))
        self.assertEqual(result.status, 2, result)
        self.assertIn("dataset", result.stderr)
        self.assertIn("share", result.stderr)

    def test_datasets_that_differ_are_refused_by_name(self) -> None:
        short = self.packed("short", 32)
        colon = self.packed("odd:1", 64)
        run = ["-o", self.folder / "run", *MODEL, "--steps", 1]
        cases = {
            (f"{self.first}:1", f"{short}:1"): "rows of 64 and of 32 tokens",
            (f"{self.first}:1", str(self.second)): "needs a weight",
            (f"{self.first}:0",): "more than 0",
            (f"{self.first}:nan",): "more than 0",
            (f"{self.first}:1", f"{self.second}:0.0001"): "less than one row in 1024",
            (f"{self.first}:1x",): "first:1x",
        }
        for data, message in cases.items():
            with self.subTest(data):
                options = [part for folder in data for part in ("--data", folder)]
                result = bindery("train", *options, *run)
                self.assertEqual(result.status, 2, result)
                self.assertIn(message, result.stderr)
        self.succeeds("train", "-q", "--data", colon, *run)  # a name, not a weight


if __name__ == "__main__":
    program.main()
