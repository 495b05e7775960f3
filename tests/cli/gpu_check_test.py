"""Without a GPU, scripts/gpu-check says at once why it cannot run and leaves nothing behind; with
a simulated driver and the emulated module it runs all its steps; a failure is reported and does
not stop the other steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import program
from program import ROOT, ProgramTest, Result
from schemas import validate

SCRIPT = ROOT / "scripts" / "gpu-check"
MODULE = os.environ["BINDERY_CUDA_MODULE"]
DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
GPU = "NVIDIA A100-SXM4-80GB, 8.0, 580.65.06, 81920"
SECONDS = 600


def driver(gpu: str = GPU, cuda: str = "13.0") -> str:
    """Installs an nvidia-smi that describes this device."""
    return f"""
case "$*" in
*--query-gpu*) echo '{gpu}' ;;
*) echo '| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: {cuda} |' ;;
esac"""


class GpuCheckTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.programs, self.here = self.folder / "programs", self.folder / "here"
        self.scratch = self.folder / "scratch"
        for folder in (self.programs, self.here, self.scratch):
            folder.mkdir()
        self.pretend("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")

    def pretend(self, name: str, script: str, folder: Path | None = None) -> Path:
        """Installs a program that is found before the real one."""
        path = (folder or self.programs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def gpu_check(self, *arguments: object, path: str = "", **environment: str) -> Result:
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        settings = {**os.environ, "PATH": f"{self.programs}{path}", "TMPDIR": str(self.scratch)}
        settings["CUDACXX"] = str(self.programs / "nvcc")
        settings.pop("CUDA_VISIBLE_DEVICES", None)
        run = subprocess.run(
            command, cwd=self.here, env={**settings, **environment}, capture_output=True,
            text=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
        )
        return Result(command, run.returncode, run.stdout, run.stderr)

    def refuses(self, reason: str, **environment: str) -> None:
        result = self.gpu_check(**environment)
        self.assertEqual(result.status, 2, result)
        self.assertIn(reason, result.stderr)
        self.assertEqual(len(result.output.splitlines()), 1, result)
        self.assertEqual([*self.here.iterdir(), *self.scratch.iterdir()], [])

    def report(self) -> dict:
        report = json.loads((self.here / "gpu-check.json").read_text(encoding="utf-8"))
        validate(report, "gpu-check")
        self.assertEqual([path.name for path in self.here.iterdir()], ["gpu-check.json"])
        self.assertEqual(list(self.scratch.iterdir()), [])
        return report

    def test_without_a_gpu_it_says_why_and_leaves_nothing(self) -> None:
        self.refuses("no nvidia-smi")
        self.pretend("nvidia-smi", "echo 'NVIDIA-SMI has failed because of it'; exit 9")
        self.refuses("NVIDIA-SMI has failed because of it")
        self.pretend("nvidia-smi", "echo 'No devices were found'")
        self.refuses("No devices were found")
        self.pretend("nvidia-smi", driver("Tesla T4, 7.5, 580.65.06, 15360"))
        self.refuses("Tesla T4 is too old")
        self.pretend("nvidia-smi", driver(cuda="12.4"))
        self.refuses("driver 580.65.06 is too old")
        self.pretend("nvidia-smi", driver())
        self.refuses("CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES="")

    def test_every_step_is_done_and_the_result_keeps_to_its_schema(self) -> None:
        tools = self.folder / "tools"
        self.pretend("nvidia-smi", driver())
        # A tool that reports failed calls would complain about the cases of refusals. Each program
        # has run all cases without a tool before, so one case is enough under the tools.
        self.pretend("compute-sanitizer", f"""echo "$2" >>{tools}
[ "$5 $6" = '--report-api-errors no' ] || exit 9
shift 6
case $1 in */cuda_adamw_test) exec "$@" ;; *) [ -x "$1" ] ;; esac
""")
        build = Path(program.program()).parent
        given = ("--build", build, "--module", MODULE, "--dataset", DATASET)
        result = self.gpu_check(*given, path=f"{os.pathsep}{os.environ['PATH']}")
        self.assertEqual(result.status, 0, result)
        report = self.report()
        self.assertTrue(report["good"])
        self.assertEqual(report["gpu"]["name"], "NVIDIA A100-SXM4-80GB")
        done = {step["name"] for step in report["steps"] if step["result"] == "passed"}
        for precision in ("float", "bf16"):
            self.assertIn(f"proof: opt, {precision}", done)
            self.assertIn(f"probe: opt, {precision}", done)
            self.assertIn(f"sabotage: mask, {precision}", done)
            self.assertIn(f"training: {precision}", done)
        self.assertIn("parity: cuda_operations", done)
        self.assertEqual(
            set(tools.read_text().split()), {"memcheck", "racecheck", "initcheck", "synccheck"}
        )
        measured = {(case["program"], case["precision"]) for case in report["attention"]}
        self.assertLessEqual({("bindery", "float"), ("bindery", "bf16")}, measured)
        peaks = {figures["precision"]: figures["peak_tflops"] for figures in report["training"]}
        self.assertEqual(peaks, {"float": None, "bf16": 312})

    def test_a_parity_test_of_no_case_has_failed(self) -> None:
        test = Path(program.program()).parent / "tests" / "cuda" / "cuda_adamw_test"
        run = subprocess.run([test, "emulated", MODULE, "no_such_*"], capture_output=True)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout, b"failed: no case has such a name\n")

    def test_a_failure_is_told_and_does_not_stop_the_rest(self) -> None:
        build = self.folder / "build"
        self.pretend("nvidia-smi", driver())
        # A parity test that skips itself has compared nothing.
        skipping = self.pretend("parity", "echo 'skipped: no device'; exit 77")
        tests = [{"name": "a_on_device", "command": [str(skipping), "device", "module"]},
                 {"name": "emulated", "command": [str(skipping), "emulated", "module"]}]
        self.pretend("ctest", f"echo '{json.dumps({'tests': tests})}'")
        self.pretend("bindery", "echo broken >&2; exit 2", build)
        self.pretend("bench_train", "exit 2", build / "bench")
        result = self.gpu_check("--build", build, "--dataset", DATASET)
        self.assertEqual(result.status, 1, result)
        report = self.report()
        self.assertFalse(report["good"])
        steps = {step["name"]: step for step in report["steps"]}
        self.assertNotIn("parity: emulated", steps)
        self.assertEqual(steps["parity: a_on_device"]["message"], "skipped: no device")
        self.assertIn("broken", steps["proof: gpt2, bf16"]["output"])
        self.assertIn("cannot run", steps["attention: bf16"]["message"])
        for name in ("parity: a_on_device", "sabotage: mask, float", "training speed: bf16"):
            self.assertEqual(steps[name]["result"], "failed", steps[name])

    def test_strange_answers_are_failures(self) -> None:
        build = self.folder / "build"
        self.pretend("nvidia-smi", driver())
        tests = [{"name": "a_on_device", "command": ["true", "device", "module"]}]
        self.pretend("ctest", f"echo '{json.dumps({'tests': tests})}'")
        self.pretend("true", "")
        # No JSON where JSON is expected; and on the device a loss after the first that is NaN.
        self.pretend("bindery", """
[ "$1" = train ] || { echo 'no JSON'; exit 0; }
case "$*" in *'--backend cuda'*) second=NaN ;; *) second=1.5 ;; esac
while [ "$1" != -o ]; do shift; done
printf '{"loss": 2.5}\\n{"loss": %s}\\n' $second >"$2/metrics.jsonl"
""", build)
        result = self.gpu_check("--build", build, "--dataset", DATASET)
        self.assertEqual(result.status, 1, result)
        steps = {step["name"]: step for step in self.report()["steps"]}
        self.assertEqual(steps["parity: a_on_device"]["result"], "passed")
        self.assertEqual(steps["proof: opt, float"]["result"], "failed")
        self.assertIn("JSONDecodeError", steps["proof: opt, float"]["message"])
        self.assertIn("Traceback", steps["proof: opt, float"]["output"])
        for precision in ("float", "bf16"):
            training = steps[f"training: {precision}"]
            self.assertEqual(training["result"], "failed", training)
            self.assertIn("by up to nan", training["message"])

    def test_without_a_build_nothing_can_be_done(self) -> None:
        self.pretend("nvidia-smi", driver())
        self.pretend("ctest", """echo '{"tests": []}'""")
        result = self.gpu_check("--build", self.folder / "none", "--dataset", DATASET)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(self.report()["steps"][-1]["result"], "failed")


if __name__ == "__main__":
    program.main()
