"""--isa chooses the vector code of the CPU's kernels. Every instruction set of the processor gives
the same model within rounding, and repeats itself bit for bit; the others are refused; and a run
records which one it used. The processor's instruction sets are read from the system."""

import json
import platform
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery
from schemas import validate

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", "1", "--channels", "16", "--heads", "2", "--positions", "64"]

AVX2 = {"avx2", "fma", "bmi1", "bmi2"}
NEEDS = {  # as /proc/cpuinfo names them
    "baseline": set(),
    "avx2": AVX2,
    "avx512": AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


def flags() -> set[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


HAD = [isa for isa, needed in NEEDS.items() if needed <= flags()]  # the best comes last


class Isa(ProgramTest):
    def train(self, name: str, *arguments: object) -> Path:
        run = self.folder / name
        result = self.succeeds(
            "train", "--data", DATASET, "-o", run, *MODEL, "--batch", 5, "--backend", "cpu",
            *arguments,
        )  # fmt: skip
        self.said = result.stderr
        return run

    def losses(self, run: Path) -> list[float]:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def tensors(self, run: Path, step: int) -> bytes:
        return (run / f"step-{step:08}.safetensors").read_bytes()

    def test_each_gives_the_same_model_within_rounding(self) -> None:
        losses, evaluated = {}, {}
        for isa in HAD:
            run = self.train(isa, "--steps", 4, "--isa", isa)
            checkpoint = json.loads((run / "step-00000004.json").read_text())
            validate(checkpoint, "checkpoint")
            self.assertEqual(checkpoint["isa"], isa)
            again = self.train(f"{isa}-again", "--steps", 4, "--isa", isa, "--threads", 3)
            self.assertEqual(self.tensors(run, 4), self.tensors(again, 4), isa)
            losses[isa] = self.losses(run)
            base = self.folder / HAD[0]
            result = self.succeeds("eval", "--json", "--isa", isa, base, DATASET)
            evaluated[isa] = json.loads(result.stdout)["loss"]
            self.succeeds("generate", "--tokens", 5, "--isa", isa, base)
            self.succeeds("prove", "--isa", isa, "--documents", 5, DATASET)
        for isa in HAD:
            for loss, other in zip(losses[isa], losses[HAD[0]], strict=True):
                self.assertAlmostEqual(loss, other, delta=1e-5, msg=isa)
            self.assertAlmostEqual(evaluated[isa], evaluated[HAD[0]], delta=1e-6, msg=isa)

    def test_auto_is_the_best(self) -> None:
        best = self.train("best", "--steps", 3, "--isa", HAD[-1])
        auto = self.train("auto", "--steps", 3)
        self.assertEqual(self.tensors(best, 3), self.tensors(auto, 3))
        self.assertEqual(json.loads((auto / "step-00000003.json").read_text())["isa"], HAD[-1])

    def test_a_run_that_goes_on_with_another_says_so(self) -> None:
        # The later checkpoints are removed, so that the run continues after step 2 of 4.
        run = self.train("run", "--steps", 4, "--save-every", 2, "--keep", 0, "--isa", HAD[0])
        for file in run.glob("step-00000004.*"):
            file.unlink()
        self.train("run", "--steps", 4, "--save-every", 2, "--keep", 0, "--isa", HAD[-1])
        if len(HAD) > 1:
            self.assertIn(f"step 2 was trained with {HAD[0]} and continues with {HAD[-1]}", self.said)
            self.assertIn("does not end with the same bits", self.said)
        self.train("run", "--steps", 4, "--save-every", 2, "--keep", 0, "--isa", HAD[-1])
        self.assertNotIn("same bits", self.said)

    def test_absent_instruction_sets_are_refused(self) -> None:
        train = ["train", "--data", DATASET, "-o", self.folder / "run", *MODEL, "--steps", 1]
        missing = [isa for isa in NEEDS if isa not in HAD]
        refused = [
            (["--isa", "sse2"], ["--isa", "sse2", "avx512"]),
            (["--isa", HAD[-1], "--backend", "cuda"], ["--isa", "--backend cpu"]),
            *((["--isa", isa], [f"--isa {isa}", ", ".join(HAD)]) for isa in missing),
        ]
        for options, mentions in refused:
            with self.subTest(options):
                result = bindery(*train, *options)
                self.assertEqual(result.status, 2, result)
                for mention in mentions:
                    self.assertIn(mention, result.stderr)
                self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    program.main()
