"""The CUDA backend, whole, without a device: its module is compiled for the host and executes
the same kernels, streams and matrix products. It must prove what the CPU proves, train as the CPU
trains, and be loaded by its path alone."""

import json
import os
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery

MODULE = os.environ["BINDERY_CUDA_MODULE"]
DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
# Small, since every thread of the device is a fiber here.
MODEL = ["--layers", "2", "--channels", "32", "--heads", "4", "--positions", "64"]
ON_CUDA = ["--backend", "cuda", "--backend-module", MODULE]
FAMILIES = {"opt": "tiny", "gpt2": "tiny-gpt2"}
# Both sum in float, in different orders; over 20 steps the differences stay far below this.
TOLERANCE = 1e-5


class Cuda(ProgramTest):
    def train(self, name: str, *arguments: object) -> Path:
        run = self.folder / name
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *MODEL, *arguments)
        return run

    def losses(self, run: Path) -> list[float]:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def test_packed_gradients_agree_with_documents_alone(self) -> None:
        for model in FAMILIES:
            with self.subTest(model):
                result = self.succeeds("prove", "--model", model, *ON_CUDA, DATASET)
                self.assertIn("Proved: the gradients of all", result.stdout)

    def test_nothing_leaks_between_documents(self) -> None:
        for model in FAMILIES:
            with self.subTest(model):
                result = self.succeeds("prove", "--probe", "--model", model, *ON_CUDA, DATASET)
                self.assertIn("the same in every bit", result.stdout)

    def test_every_sabotage_is_noticed(self) -> None:
        for operation in ("mask", "positions", "targets"):
            with self.subTest(operation):
                result = bindery("prove", "--sabotage", operation, *ON_CUDA, DATASET)
                self.assertEqual(result.status, 1, result)

    def test_twenty_steps_follow_the_cpu(self) -> None:
        for preset in FAMILIES.values():
            with self.subTest(preset):
                how = ["--preset", preset, "--steps", 20, "--batch", 4, "--micro-batch", 2]
                cpu = self.losses(self.train(f"{preset}-cpu", *how, "--backend", "cpu"))
                cuda = self.losses(self.train(f"{preset}-cuda", *how, *ON_CUDA))
                self.assertEqual(len(cuda), 20)
                self.assertGreater(cpu[0] - cpu[-1], 0.1)
                for here, there in zip(cpu, cuda, strict=True):
                    self.assertAlmostEqual(here, there, delta=TOLERANCE)

    def test_a_resumed_run_ends_with_the_same_bits(self) -> None:
        how = ["--steps", 8, "--save-every", 4, *ON_CUDA]
        whole, stopped = self.train("whole", *how), self.train("stopped", *how)
        last = "step-00000008.safetensors"
        for path in stopped.glob("step-00000008.*"):
            path.unlink()
        self.succeeds("train", "-q", "--data", DATASET, "-o", stopped, "--resume", *MODEL, *how)
        self.assertEqual((whole / last).read_bytes(), (stopped / last).read_bytes())

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
