"""Invented folders of training runs: only their metrics.jsonl."""

import json
import random
from pathlib import Path

from schemas import validate

RUNS = 16  # limit of a page, as trainer/report/run_page.h says


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


def write_run(run: Path, lines: list[dict], more: bytes = b"") -> Path:
    """Makes the folder of a run that wrote these lines, and then `more`."""
    run.mkdir(parents=True)
    for line in lines[:5] + lines[-5:]:
        validate(line, "metrics")
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_bytes(text.encode() + more)
    return run
