"""`bindery train` accepts the default datasets of `bindery pack`. A refusal names the option that
helps, and leaves nothing behind."""

import json
import math
import re
import shutil
from pathlib import Path

import program
from program import CONTROL_CHARACTER, ROOT, ProgramTest, Result, bindery, changed

GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"  # rows of 64 tokens, from the tokenizer of 257 bytes
SMALL = ["--layers", 1, "--channels", 32, "--heads", 4]
# Short and long options, and other commands: remedies that a message can name.
REMEDY = r"(^| |'|`)(-o|--[a-z]+(-[a-z]+)*|bindery (repack|pack) --[a-z-]+)\b"


class Defaults(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        text = " ".join(str(i) for i in range(6000))
        corpus = self.folder / "corpus.jsonl"
        # A document that fills several rows, and enough short ones.
        documents = [text] + [f"document {i}" for i in range(300)]
        corpus.write_text("".join(json.dumps({"text": t}) + "\n" for t in documents))
        self.shards = self.folder / "shards"
        self.succeeds("pack", "-q", "-o", self.shards, "--holdout", "10%", corpus)

    def positions(self, run: Path) -> int:
        model = json.loads((run / "step-00000001.json").read_text())["model"]
        return model.get("max_position_embeddings", model.get("n_positions"))

    def test_a_new_model_has_positions_for_the_rows_that_pack_makes(self) -> None:
        for preset, own in (("tiny", 512), ("small-gpt2", 1024)):
            with self.subTest(preset):
                run = self.folder / preset
                result = self.succeeds(
                    *["train", "--data", self.shards, "-o", run, "--preset", preset, "--steps", 1],
                    *["--batch", 1, "--layers", 1, "--eval", self.shards / "holdout"],
                )
                self.assertIn(f"has 2048 positions instead of {own}", result.stderr)
                self.assertEqual(self.positions(run), 2048)

    def test_positions_that_suffice_are_left_alone(self) -> None:
        run = self.folder / "run"
        result = self.succeeds("train", "--data", DATASET, "-o", run, *SMALL, "--steps", 1)
        self.assertNotIn("positions", result.stderr)
        self.assertEqual(self.positions(run), 512)

    def test_the_same_command_continues_the_model_that_was_fitted(self) -> None:
        how = ["train", "-q", "--data", self.shards, "-o", self.folder / "run", *SMALL,
               "--batch", 1, "--steps", 2, "--save-every", 1]
        self.succeeds(*how)
        for path in (self.folder / "run").glob("step-00000002.*"):
            path.unlink()
        self.succeeds(*how)
        self.assertTrue((self.folder / "run" / "step-00000002.json").exists())


class DryRuns(ProgramTest):
    """What a run takes is counted from tensors that a real run of the same model has saved."""

    HOW = ["--data", DATASET, "--preset", "llama-tiny", "--layers", 2, "--steps", 3, "--batch", 4]

    def figures(self, *arguments: object) -> dict[str, str]:
        """The amounts of the lines on memory, by kind."""
        how = changed(self.HOW, *arguments)
        result = self.succeeds("train", "--dry-run", *how)
        kinds = "weights|gradients|optimizer|activations|logits|scratch|samples|checkpoint|in all"
        return dict(re.findall(rf"({kinds}) +([0-9.]+ [KMG]?i?B)", result.stdout))

    def bytes_of(self, amount: str) -> float:
        number, unit = amount.split()
        return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]

    def test_memory_is_that_of_the_parameters_and_the_batch(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", *self.HOW, "-o", run)
        header = (run / "step-00000003.safetensors").read_bytes()
        size = int.from_bytes(header[:8], "little")
        tensors = json.loads(header[8 : 8 + size])
        n = sum(math.prod(t["shape"]) for name, t in tensors.items()
                if name != "__metadata__" and not name.startswith(("adamw.", "muon.")))
        figures = self.figures()
        shown = self.succeeds("train", "--dry-run", *self.HOW).stdout
        self.assertIn(f"llama with {n:,} parameters", shown)
        self.assertIn("3 steps of 4 rows of 64 tokens: 256 tokens a step", shown)
        half_a_digit = 0.01  # amounts have three digits
        for kind, expected in (("gradients", 4 * n), ("optimizer", 8 * n), ("checkpoint", 12 * n)):
            difference = abs(self.bytes_of(figures[kind]) - expected)
            self.assertLessEqual(difference, half_a_digit * expected, kind)
        parts = sum(self.bytes_of(v) for kind, v in figures.items() if kind != "in all")
        whole = self.bytes_of(figures["in all"])
        self.assertLessEqual(abs(parts - whole), half_a_digit * whole)
        fewer = self.figures("--micro-batch", 2)
        ratio = self.bytes_of(figures["activations"]) / self.bytes_of(fewer["activations"])
        self.assertAlmostEqual(ratio, 2, delta=0.1)
        again = self.figures("--recompute")
        self.assertLess(self.bytes_of(again["activations"]), self.bytes_of(figures["activations"]))

    def test_nothing_is_written(self) -> None:
        self.succeeds("train", "--dry-run", *self.HOW, "-o", self.folder / "above" / "run")
        self.assertFalse((self.folder / "above").exists())

    def test_a_type_that_the_backend_lacks_is_refused(self) -> None:
        result = bindery("train", "--dry-run", *self.HOW, "--backend", "cpu", "--precision", "bf16")
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, "computes in float only; --precision float")

    def test_what_does_not_fit_is_said_with_what_helps(self) -> None:
        huge = ["--preset", "llama-8b", "--layers", 1000, "--data", DATASET]
        result = bindery("train", "--dry-run", *huge)
        self.assertEqual(result.status, 1, result)
        self.assertRegex(result.stdout, "It does not fit")
        self.assertRegex(result.stdout, "--recompute takes .*\n.*--recompute --micro-batch 1 takes")
        result = bindery("train", "--dry-run", *huge, "--recompute", "--peak-tflops", 100)
        self.assertEqual(result.status, 1, result)
        self.assertRegex(result.stdout, "help:\n +--micro-batch 1 takes")
        self.assertRegex(result.stdout, "at 40 % of --peak-tflops")

    def work(self, *arguments: object) -> tuple[float, float, str]:
        """FLOP of a step, those that are more than the model's mathematics, and what for."""
        said = self.succeeds("train", "--dry-run", *changed(self.HOW, *arguments)).stdout
        pattern = r"work +(?:at most )?([0-9.]+) ([kMG])FLOP a step[^;\n]*(?:; ([0-9.]+) ([kMG])FLOP more (.*))?"
        flop, unit, more, unit_of_more, why = re.search(pattern, said).groups()
        factors = {"k": 1e3, "M": 1e6, "G": 1e9}
        return (float(flop) * factors[unit],
                float(more) * factors[unit_of_more] if more else 0, why or "")  # fmt: skip

    def test_copies_and_samples_are_counted(self) -> None:
        weights = self.bytes_of(self.figures()["weights"])
        averaged = self.figures("--average", 0.9)
        self.assertAlmostEqual(self.bytes_of(averaged["checkpoint"]) / weights, 4, delta=0.05)
        self.assertNotIn("checkpoint", self.figures("--save-memory", 0))
        sampled = self.figures("--sample-every", 2)
        self.assertIn("samples", sampled)
        more = self.figures("--sample-every", 2, "--sample-prompt", "x", "--sample-prompt", "y" * 99)
        self.assertLess(self.bytes_of(sampled["samples"]), self.bytes_of(more["samples"]))

    def test_work_beyond_the_models_mathematics_is_told(self) -> None:
        flop, more, why = self.work()
        self.assertEqual((more, why), (0, ""))
        same, again, why = self.work("--recompute")
        self.assertEqual((same, why), (flop, "to recompute layers"))
        self.assertTrue(0.25 * flop < again < flop / 3, (flop, again))  # the head is not
        # 2 layers of 128 channels: q and output, k and v, gate and up, down.
        shapes = 2 * ([(128, 128)] * 2 + [(64, 128)] * 2 + [(384, 128)] * 3)
        expected = sum(5 * min(s) ** 2 * (3 * max(s) + min(s)) for s in shapes)
        same, by_muon, why = self.work("--optimizer", "muon")
        self.assertEqual((same, why), (flop, "for Muon"))
        self.assertAlmostEqual(by_muon / expected, 1, delta=0.01)
        both = self.work("--optimizer", "muon", "--recompute")
        self.assertAlmostEqual(both[1] / (by_muon + again), 1, delta=0.01)
        self.assertEqual(both[2], "to recompute layers and for Muon")

    def test_datasets_are_weighted_by_their_shares(self) -> None:
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text('{"text": "short"}\n' * 500)
        sparse = self.pack(self.folder / "sparse", [corpus], "--seq-len", 64, "--max-documents", 1)
        how = [*self.HOW[2:]]
        def flop(*data: object) -> float:
            said = self.succeeds("train", "--dry-run", *data, *how).stdout
            amount, unit = re.search(r"work +([0-9.]+) ([kMG])FLOP", said).groups()
            return float(amount) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit]
        dense, thin = flop("--data", DATASET), flop("--data", sparse)
        self.assertLess(thin, 0.2 * dense)
        mixed = flop("--data", f"{DATASET}:0.9", "--data", f"{sparse}:0.1")
        self.assertAlmostEqual(mixed / (0.9 * dense + 0.1 * thin), 1, delta=0.01)


class Refusals(ProgramTest):
    def assert_refused(self, result: Result, mention: str) -> None:
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertIsNone(CONTROL_CHARACTER.search(result.stderr), result)
        self.assertRegex(result.stderr, mention)
        self.assertRegex(result.stderr, REMEDY)

    def assert_nothing_left(self, mention: str, *arguments: object) -> None:
        """A new run that is refused; `above` is a folder that would have to be made for it."""
        above = self.folder / "above"
        data = [] if "--data" in arguments else ["--data", DATASET]
        result = bindery("train", "-o", above / "run", *data, *changed(SMALL, *arguments))
        self.assert_refused(result, mention)
        self.assertFalse(above.exists(), result)

    def packed(self, name: str, *options: object) -> Path:
        return self.pack(self.folder / name, [GOLDEN / "corpus"], *options)

    def write(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def config(self, **changes: object) -> Path:
        config = json.loads((GOLDEN / "opt" / "config.json").read_text()) | changes
        return self.write("config.json", json.dumps(config))

    def exported(self, name: str, *options: object) -> Path:
        run, model = self.folder / f"{name}-run", self.folder / name
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, "--steps", 1,
                      *changed(SMALL, *options))
        self.succeeds("export", "-q", "--model", run, "-o", model)
        return model

    def test_data_that_cannot_be_trained_on(self) -> None:
        short = self.packed("short", "--seq-len", 32)
        other = self.packed("bos", "--seq-len", 64, "--bos", 3)
        no_tokenizer = shutil.copytree(DATASET, self.folder / "no-tokenizer")
        (no_tokenizer / "tokenizer.json").write_text("{}")
        for mention, data in (
            ("no-such", ["no-such"]),
            ("needs a weight", [f"{DATASET}:1", short]),
            ("more than 0", [f"{DATASET}:0"]),
            ("rows of 64 and of 32 tokens", [f"{DATASET}:1", f"{short}:1"]),
            ("before documents", [f"{DATASET}:1", f"{other}:1"]),
            ("less than one row in 1024", [f"{DATASET}:1", f"{DATASET}:0.0001"]),
            ("tokenizer.json.*checksum", [no_tokenizer]),
        ):
            with self.subTest(mention):
                self.assert_nothing_left(mention, *(part for d in data for part in ("--data", d)))

    def mistral(self) -> Path:
        config = {"model_type": "mistral", **program.CONFIGS["mistral"]}
        return self.write("mistral.json", json.dumps(config))

    def test_a_model_that_cannot_be(self) -> None:
        for mention, options in (
            ("--positions 63 .*segment of 64", ["--positions", 63]),
            ("--heads", ["--channels", 100, "--heads", 3]),
            ("--kv-heads", ["--kv-heads", 1]),  # OPT has none of its own
            ("--kv-heads must divide", ["--preset", "llama-tiny", "--kv-heads", 3]),
            ("--head-size must be even", ["--preset", "llama-tiny", "--head-size", 7]),
            ("--layers 5 .*windows", ["--config", self.mistral(), "--layers", 5]),
            ("vocabulary of 256.*--vocab-size", ["--config", self.config(vocab_size=256)]),
            ("vocabulary of 256.*--vocab-size", ["--vocab-size", 256]),
            ("mamba.json.*mamba", ["--config", self.write("mamba.json", '{"model_type": "mamba"}')]),
            ("no-such", ["--config", self.folder / "no-such"]),
        ):
            with self.subTest(mention):
                self.assert_nothing_left(mention, *options)

    def test_weights_that_cannot_be_begun_with(self) -> None:
        model = self.exported("model", "--positions", 64)
        longer = self.packed("longer", "--seq-len", 96)
        bin_only = self.folder / "bin"
        bin_only.mkdir()
        shutil.copy(model / "config.json", bin_only)
        (bin_only / "pytorch_model.bin").write_bytes(b"")
        empty = self.folder / "empty"
        empty.mkdir()
        damaged = shutil.copytree(model, self.folder / "damaged")
        with open(damaged / "model.safetensors", "r+b") as file:
            file.truncate(1000)
        for mention, options in (
            ("64 positions.*bindery repack --seq-len 64", ["--init", model, "--data", longer]),
            ("another model", ["--init", model, "--layers", 2]),
            ("pytorch_model.bin", ["--init", bin_only]),
            ("config.json", ["--init", empty]),
            ("model.safetensors", ["--init", damaged]),
        ):
            with self.subTest(mention):
                self.assert_nothing_left(mention, *options)

    def test_a_run_that_has_no_sense(self) -> None:
        longer = self.packed("longer", "--seq-len", 96)
        for mention, options in (
            ("only one can say", ["--steps", 1, "--epochs", 1]),
            ("--decay", ["--schedule", "wsd", "--decay", 1.5]),
            ("--optimizer", ["--optimizer", "sgd"]),
            ("--momentum", ["--optimizer", "muon", "--momentum", 1]),
            ("--average", ["--average", 1]),
            ("--matrix-rate-factor", ["--matrix-rate-factor", -1]),
            ("--z-loss", ["--z-loss", -1e-4]),
            ("more than 2\\^40 steps", ["--tokens", 2**62, "--batch", 1]),
            ("rows have 96 tokens", ["--eval", longer]),
            ("no-such", ["--eval", "no-such"]),
            ("--sample-prompt", ["--sample-every", 1, "--sample-prompt", ""]),
            ("cuda is not available", ["--backend", "cuda", "--backend-module", "no-such"]),
            ("computes in float only", ["--backend", "cpu", "--precision", "bf16"]),
            (r"takes \d.* [TP]iB of .* of cpu, and \d.* free: .*--micro-batch.*--recompute",
             ["--batch", 2**20, "--layers", 1024, "--backend", "cpu"]),
        ):
            with self.subTest(mention):
                self.assert_nothing_left(mention, *options)

    def test_an_evaluation_looks_for_memory_first(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, *SMALL, "--steps", 1, "-o", run)
        result = bindery("eval", run, DATASET, "--batch", 2**20, "--backend", "cpu")
        self.assertEqual(result.status, 2, result)
        self.assertRegex(result.stderr, r"take \d.* of the memory of cpu, and \d.* free: fewer")

    def test_a_run_that_cannot_be_continued(self) -> None:
        run = self.folder / "run"
        begun = ["train", "-q", "--data", DATASET, *SMALL, "--steps", 2, "--save-every", 1]
        self.succeeds(*begun, "-o", run)
        before = sorted(path.name for path in run.iterdir())
        absent, empty = self.folder / "absent", self.folder / "empty"
        empty.mkdir()
        for mention, options in (
            ("holds no checkpoint", ["--resume", empty]),
            ("absent", ["--resume", absent]),
            ("different folders", ["--resume", run, "-o", absent]),
            ("seed: 5 here", ["-o", run, "--seed", 5]),
            ("num_hidden_layers", ["-o", run, "--layers", 2]),
            ("step-00000007", ["-o", run, "--resume-from", 7]),
        ):
            with self.subTest(mention):
                self.assert_refused(bindery(*changed(begun, *options)), mention)
        self.assertEqual(before, sorted(path.name for path in run.iterdir()))
        self.assertFalse(absent.exists())
        self.assertEqual(list(empty.iterdir()), [])

    def test_a_folder_that_is_not_for_a_run(self) -> None:
        folder = self.folder / "somebodys"
        folder.mkdir()
        (folder / "letter").write_text("important")
        result = bindery("train", "--data", DATASET, "-o", folder, *SMALL)
        self.assert_refused(result, "'letter'")
        self.assert_refused(bindery("train", "--data", DATASET), "-o DIR")
        self.assert_refused(bindery("train", "--data", DATASET, "-o", folder / "letter"), "letter")


if __name__ == "__main__":
    program.main()
