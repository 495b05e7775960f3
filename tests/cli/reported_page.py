"""Runs, and pages of `bindery report` for tests to look at."""

import json
import random
from pathlib import Path

import jsonschema
from browser import BrowserTest
from playwright.sync_api import Page
from program import ROOT

SCHEMA = json.loads((ROOT / "schemas" / "metrics-v1.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]


def step_line(step: int, rng: random.Random) -> dict:
    return {
        "step": step, "loss": 2 + 4 / step + rng.random(), "gradient_norm": rng.uniform(0.1, 9),
        "learning_rate": 1e-3 / step, "targets": 500, "tokens": 512, "used": 510, "pairs": 9000,
        "flop": 1.5e9, "seconds": rng.uniform(0.01, 0.02),
    }


def eval_line(step: int, losses: dict[str, float]) -> dict:
    values = [{"dataset": name, "loss": loss, "targets": 9} for name, loss in losses.items()]
    return {"event": "eval", "step": step, "values": values}


def sample_line(step: int, prompt: str, text: str) -> dict:
    return {"event": "sample", "step": step, "values": [{"prompt": prompt, "text": text}]}


def steps(n: int, seed: int) -> list[dict]:
    rng = random.Random(seed)
    return [step_line(step, rng) for step in range(1, n + 1)]


class ReportTest(BrowserTest):
    """A test that makes runs and pages."""

    def run_of(self, name: str, lines: list[dict], more: bytes = b"") -> Path:
        """The folder of a run that wrote these lines."""
        run = self.folder / name
        run.mkdir(parents=True)
        for line in lines[:5] + lines[-5:]:
            VALIDATOR.validate(line)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run / "metrics.jsonl").write_bytes(text.encode() + more)
        return run

    def make_page(self, *runs: Path) -> Path:
        path = self.folder / "report.html"
        self.succeeds("report", *runs, "-o", path, "--overwrite")
        return path

    def show_step(self, page: Page, step: int) -> None:
        page.locator("#step").fill(str(step))

    def readouts(self, page: Page, plot: str) -> list[list[str]]:
        """Of each run that is drawn, its name and its figures at the cursor."""
        return page.locator(f"[data-plot={plot}] .readouts li").evaluate_all(
            "all => all.map(li => [li.querySelector('bdi'), li.querySelector('strong')]"
            ".map(node => node.textContent))"
        )

    def n_curves(self, page: Page, plot: str) -> int:
        return page.locator(f"[data-plot={plot}] .area .curve").count()
