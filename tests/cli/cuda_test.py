"""The whole CUDA backend without a device: its module is compiled for the host and executes the
same kernels, streams and matrix products. It must prove what the CPU proves, train as the CPU
trains, and be loaded only by its path."""

import itertools
import json
import os
import shutil
from pathlib import Path

import program
from program import ALL_FAMILIES, BRIEF, FAMILIES, LONG, ROOT, ProgramTest, bindery, sabotages

MODULE = os.environ["BINDERY_CUDA_MODULE"]
DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MASKED = ROOT / "tests" / "golden" / "train-2" / "dataset"
LOSSES = ("per-token", "per-document")
# Small, since every thread of the device is a fiber here.
MODEL = ["--layers", "2", "--channels", "32", "--heads", "4", "--positions", "64"]
ON_CUDA = ["--backend", "cuda", "--backend-module", MODULE]
# Attention in bf16 takes heads of 64 channels at least.
BF16_MODEL = ["--layers", "2", "--channels", "64", "--heads", "1", "--positions", "64"]
IN_BF16 = ["--precision", "bf16", *ON_CUDA]
PRECISIONS = ("float", "bf16")
# The worst element exceeds its bound by at least this factor.
SABOTAGE_RATIOS = {"float": 100, "bf16": 5}
# Each with each; in a brief run every one of both, but once.
MODELS = [*(zip(ALL_FAMILIES, itertools.cycle(PRECISIONS)) if BRIEF
            else itertools.product(ALL_FAMILIES, PRECISIONS))]
DOCUMENTS = str(program.amount(brief=4, usual=8, long=20))  # in a proof
SABOTAGES = [*((family, what) for family in ALL_FAMILIES for what in sabotages(family))]
SABOTAGED = [*(zip(SABOTAGES, itertools.cycle(PRECISIONS)) if BRIEF
               else itertools.product(SABOTAGES, PRECISIONS))]
# Each precision with each loss, and with --long each family with all of them. Half of the tokens are
# masked: with fewer documents there would be too few targets to measure the noise of bf16
# (docs/proof.md).
MASKED_DOCUMENTS = "20"
MASKED_MODELS = [*(itertools.product(ALL_FAMILIES, PRECISIONS, LOSSES) if LONG
                   else zip(ALL_FAMILIES, itertools.cycle(PRECISIONS),
                            itertools.cycle((*LOSSES, *LOSSES[::-1]))))]  # fmt: skip
# Both sum in float, in different orders; over 20 steps the differences stay far below this.
TOLERANCE = 1e-5
# Every logit is rounded to 8 bits; a loss is the mean over hundreds of targets, and the weights
# themselves drift apart by a rounding in each step.
BF16_TOLERANCE = 2e-2


class Cuda(ProgramTest):
    def train(self, name: str, *arguments: object, model: list[str] = MODEL,
              dataset: Path = DATASET) -> Path:  # fmt: skip
        run = self.folder / name
        self.succeeds("train", "-q", "--data", dataset, "-o", run, *model, *arguments)
        return run

    def losses(self, run: Path) -> list[float]:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def prove(self, precision: str, *arguments: str, dataset: Path = DATASET) -> program.Result:
        return bindery("prove", *arguments, "--precision", precision, *ON_CUDA, dataset)

    def test_packing_is_proved(self) -> None:
        for model, precision in MODELS:
            with self.subTest(model, precision=precision):
                result = self.prove(precision, "--model", model, "--documents", DOCUMENTS)
                self.assertEqual(result.status, 0, result)
                self.assertIn("Nothing leaks", result.stdout)
                self.assertIn("Proved: the gradients of all", result.stdout)

    def test_a_leak_ends_a_run_at_its_next_probe(self) -> None:
        leaking = ["--backend", "cuda", "--backend-module", os.environ["BINDERY_LEAKING_MODULE"]]
        how = ["train", "-q", "--data", DATASET, *MODEL, "--steps", 4, "--save-every", 1]
        unseen, seen = self.folder / "unseen", self.folder / "seen"
        self.succeeds(*how, "-o", unseen, *leaking)
        result = bindery(*how, "-o", seen, *leaking, "--probe", 3)
        self.assertEqual(result.status, 1, result)
        self.assertRegex(result.stderr, r"the probe after step 3 found a leak: .* segment \d+ of "
                                        r"row \d+ \(\d+ tokens")
        self.assertEqual(len(self.losses(seen)), 2)  # no run may continue from step 3
        self.assertFalse((seen / "step-00000003.json").exists())
        self.succeeds(*how, "-o", self.folder / "honest", *ON_CUDA, "--probe", 3)

    def test_every_sabotage_is_noticed(self) -> None:
        for (model, operation), precision in SABOTAGED:
            with self.subTest(operation, model=model, precision=precision):
                how = ["--json", "--model", model, "--sabotage", operation, "--documents", "4"]
                result = self.prove(precision, *how)
                self.assertEqual(result.status, 1, result)
                ratio = json.loads(result.stdout)["gradients"]["worst_ratio"]
                # null: infinite, a gradient where there is no term
                self.assertTrue(ratio is None or ratio >= SABOTAGE_RATIOS[precision], ratio)

    def test_packing_is_proved_with_masks(self) -> None:
        for model, precision, loss in MASKED_MODELS:
            with self.subTest(model, precision=precision, loss=loss):
                result = self.prove(precision, "--model", model, "--documents", MASKED_DOCUMENTS,
                                    "--loss", loss, dataset=MASKED)  # fmt: skip
                self.assertEqual(result.status, 0, result)
                self.assertIn("Nothing leaks", result.stdout)

    def test_a_mask_that_is_lost_is_noticed(self) -> None:
        for model, precision in itertools.product(("opt", "llama"), PRECISIONS):
            with self.subTest(model, precision=precision):
                how = ["--json", "--model", model, "--sabotage", "mask-loss", "--documents", "6"]
                result = self.prove(precision, *how, dataset=MASKED)
                self.assertEqual(result.status, 1, result)
                ratio = json.loads(result.stdout)["gradients"]["worst_ratio"]
                self.assertTrue(ratio is None or ratio >= SABOTAGE_RATIOS[precision], ratio)

    def test_masked_steps_follow_the_cpu(self) -> None:
        for loss in LOSSES:
            with self.subTest(loss):
                how = ["--steps", 8, "--batch", 5, "--micro-batch", 2, "--loss", loss]
                cpu = self.losses(self.train(f"{loss}-cpu", *how, "--backend", "cpu", dataset=MASKED))
                cuda = self.losses(self.train(f"{loss}-cuda", *how, *ON_CUDA, dataset=MASKED))
                for here, there in zip(cpu, cuda, strict=True):
                    self.assertAlmostEqual(here, there, delta=TOLERANCE)

    def test_twenty_steps_follow_the_cpu(self) -> None:
        for preset in [*FAMILIES.values()][: 1 if BRIEF else None]:
            with self.subTest(preset):
                how = ["--preset", preset, "--steps", 20, "--batch", 4, "--micro-batch", 2]
                cpu = self.losses(self.train(f"{preset}-cpu", *how, "--backend", "cpu"))
                cuda = self.losses(self.train(f"{preset}-cuda", *how, *ON_CUDA))
                self.assertEqual(len(cuda), 20)
                self.assertGreater(cpu[0] - cpu[-1], 0.1)
                for here, there in zip(cpu, cuda, strict=True):
                    self.assertAlmostEqual(here, there, delta=TOLERANCE)

    def test_twenty_steps_in_bf16_follow_the_cpu(self) -> None:
        for preset in [*FAMILIES.values()][1 if BRIEF else 0 :]:
            with self.subTest(preset):
                how = ["--preset", preset, "--steps", 20, "--batch", 4, "--micro-batch", 2]
                float_run = self.train(f"{preset}-float", *how, "--backend", "cpu",
                                       model=BF16_MODEL)
                bf16_run = self.train(f"{preset}-bf16", *how, *IN_BF16, model=BF16_MODEL)
                for here, there in zip(self.losses(float_run), self.losses(bf16_run),
                                       strict=True):
                    self.assertAlmostEqual(here, there, delta=BF16_TOLERANCE)

    def test_generation_follows_the_cpu(self) -> None:
        """In float the likeliest tokens are the same; in bf16 a prompt is what it is alone."""
        prompts = ["The", "A longer prompt"]
        given = [word for prompt in prompts for word in ("--prompt", prompt)]
        how = ["generate", "--json", "--tokens", 8, "--temperature", 0]
        for preset in FAMILIES.values():
            with self.subTest(preset):
                run = self.train(f"{preset}-run", "--preset", preset, "--steps", 10, model=BF16_MODEL)
                cpu = self.succeeds(*how, *given, "--backend", "cpu", run).stdout
                self.assertEqual(self.succeeds(*how, *given, *ON_CUDA, run).stdout, cpu)
                together = self.succeeds(*how, *given, *IN_BF16, run).stdout.splitlines()
                for prompt, line in zip(prompts, together, strict=True):
                    alone = self.succeeds(*how, "--prompt", prompt, *IN_BF16, run).stdout
                    self.assertEqual(alone, f"{line}\n")

    def test_a_resumed_run_ends_with_the_same_bits(self) -> None:
        n = 8 if LONG else 4
        last = f"step-{n:08}.safetensors"
        for precision, model in (("float", MODEL), ("bf16", BF16_MODEL)):
            with self.subTest(precision):
                how = ["--steps", n, "--save-every", n // 2, "--precision", precision,
                       "--optimizer", "muon", "--average", 0.9]  # fmt: skip
                whole = self.train(f"whole-{precision}", *how, *ON_CUDA, model=model)
                # A run that was stopped after its first half has written the same lines until then.
                stopped = shutil.copytree(whole, self.folder / f"stopped-{precision}")
                for path in stopped.glob(f"step-{n:08}.*"):
                    path.unlink()
                self.assertNotEqual(list(stopped.glob("step-*")), [])
                self.succeeds("train", "-q", "--data", DATASET, "--resume", stopped,
                              *model, *how, *ON_CUDA)
                self.assertEqual((whole / last).read_bytes(), (stopped / last).read_bytes())

    def test_impossible_bf16_is_refused_before_any_work(self) -> None:
        for model, how, reason in (
            (BF16_MODEL, ["--backend", "cpu"], "the cpu backend computes in float only"),
            (MODEL, ON_CUDA, "heads of 64 or 128 channels, the model's have 8"),
            # The emulated device has as much memory as this.
            (BF16_MODEL, [*ON_CUDA, "--batch", 2**20], "of the memory of cuda, and 64.0 GiB are free"),
        ):
            with self.subTest(reason):
                run = self.folder / "refused"
                result = bindery("train", "--data", DATASET, "-o", run, *model, "--steps", "1",
                                 "--precision", "bf16", *how)
                self.assertEqual(result.status, 2, result)
                self.assertIn(reason, result.stderr)
                self.assertEqual(list(run.glob("step*")), [])

    def test_a_dry_run_refuses_impossible_bf16_and_counts_scratch(self) -> None:
        dry = ["train", "--dry-run", "--data", DATASET, "--steps", "1", *IN_BF16]
        result = bindery(*dry, *MODEL)
        self.assertEqual(result.status, 2, result)
        self.assertIn("heads of 64 or 128 channels, the model's have 8", result.stderr)
        said = self.succeeds(*dry, *BF16_MODEL).stdout
        self.assertRegex(said, r"scratch +32\.[0-9] MiB  of the device")
        self.assertRegex(said, r"in all .*\n +checkpoint .*  of the host's memory")

    def test_bf16_is_what_a_device_computes_in_if_the_heads_allow(self) -> None:
        for model, precision, line in (
            (BF16_MODEL, "bf16", ""),
            (MODEL, "float", "heads of 64 or 128 channels, the model's have 8"),
        ):
            with self.subTest(precision):
                run = self.folder / precision
                result = self.succeeds("train", "--data", DATASET, "-o", run, "--steps", 1,
                                       *model, *ON_CUDA)
                self.assertIn(f"in {precision} on cuda", result.stderr)
                self.assertIn(line, result.stderr)
                self.assertEqual(bool(line), "computes in float" in result.stderr)
                training = json.loads((run / "step-00000001.json").read_text())["training"]
                self.assertEqual(training.get("precision", "float"), precision)
                said = json.loads(self.succeeds("eval", "--json", run, DATASET, *ON_CUDA,
                                                "--rows", 1).stdout)
                self.assertEqual(said["precision"], precision)

    def test_a_run_is_resumed_in_its_own_precision_alone(self) -> None:
        n = ["--steps", 2, "--save-every", 1]
        run = self.train("run", *n, *IN_BF16, model=BF16_MODEL)
        whole = (run / "step-00000002.safetensors").read_bytes()
        for path in run.glob("step-00000002.*"):
            path.unlink()
        again = ["train", "--data", DATASET, "-o", run, *n, *BF16_MODEL]
        for how, reason in ((["--precision", "float", *ON_CUDA], "precision"),
                            (["--backend", "cpu"], "in bf16: .*float only; --backend cuda")):
            with self.subTest(reason):
                result = bindery(*again, "--precision", "auto", *how)
                self.assertEqual(result.status, 2, result)
                self.assertRegex(result.stderr, reason)
        self.succeeds(*again, "--precision", "auto", *ON_CUDA)
        self.assertEqual((run / "step-00000002.safetensors").read_bytes(), whole)
        # Where there is no device, the model can still be used.
        said = self.succeeds("eval", "--json", run, DATASET, "--rows", 1, "--backend", "cpu")
        self.assertEqual(json.loads(said.stdout)["precision"], "float")
        self.assertIn("computes in float", said.stderr)

    def test_without_a_module_the_reason_is_told_and_the_cpu_serves(self) -> None:
        result = bindery("prove", "--backend", "cuda", DATASET)
        self.assertEqual(result.status, 2, result)
        self.assertIn("cuda is not available", result.stderr)
        result = bindery("prove", "--backend-module", self.folder / "none.so", DATASET)
        self.assertEqual(result.status, 2, result)
        self.assertIn("none.so", result.stderr)
        self.succeeds("prove", DATASET)


if __name__ == "__main__":
    program.main()
