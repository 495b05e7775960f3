"""Makes tests/golden/train-1: the results of training on a small dataset, computed by PyTorch.

    torch_golden.py                          # from the stored dataset
    torch_golden.py --pack build/bindery     # packs the corpus again first

tests/golden/README.md describes the files. There is one thread and fixed seeds: on one machine the
files are the same bytes every time; on another one only the weights are, and the last digits of
the other numbers may differ.
"""

import argparse
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from torch_loader import Row, epoch_order, read_dataset, rows_of_step
from torch_models import (
    MODELS,
    Batch,
    Config,
    Weights,
    break_mask,
    break_positions,
    break_targets,
    cast,
    gradients,
    hugging_face_config,
    largest,
    loss,
    mean_of_row_means,
    pack,
    random_weights,
    separate,
    token_losses,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "train-1"
SEQ_LEN = 64
SEPARATOR = 256
SIZES = {
    "n_layers": 2,
    "n_channels": 24,
    "n_heads": 3,
    "n_positions": SEQ_LEN,
    "vocab_size": SEPARATOR + 1,
}
# With some seeds (20, 2) an activation of OPT passes so close to ReLU's kink that float and double
# are on different sides, and their losses differ by 5e-5. With this seed they agree within 1e-6, so
# that a test of another program can be as strict.
WEIGHTS_SEED = {"opt": 1, "gpt2": 2}
TRAINING = {
    "seed": 1234,
    "steps": 200,
    "rows_per_step": 4,
    "warmup_steps": 20,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-4,
    "betas": [0.9, 0.95],
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "clip_norm": 1.0,
}
DTYPES = {"float": torch.float32, "double": torch.float64}


def shortest(value: torch.Tensor) -> float:
    """Returns a scalar with as few digits as its own precision needs."""
    return float(str(value.detach().numpy()))


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def pack_corpus(program: str) -> None:
    """Packs the dataset again; the log of the run is not part of it."""
    options = ["--seq-len", str(SEQ_LEN), "--tokenizer", "bytes", "--strategy", "best-fit"]
    command = [Path(program).resolve(), "pack", "-q", "--overwrite", *options]
    command += ["-o", "dataset", "corpus"]
    subprocess.run(command, cwd=GOLDEN, check=True, stdout=subprocess.DEVNULL)
    (GOLDEN / "dataset" / "pack-log.json").unlink()


def differences(a: Weights, b: Weights) -> dict[str, float]:
    """Returns the largest absolute difference of every tensor."""
    return {name: largest(a[name] - b[name]) for name in a}


def broken_losses(config: Config, weights: Weights, batch: Batch, rows: list[Row]) -> dict:
    """Returns the loss of each fault, which a test must be able to notice."""
    return {
        "positions": loss(config, weights, [break_positions(batch)]),
        "mask": loss(config, weights, [break_mask(batch)]),
        "targets": loss(config, weights, [break_targets(batch, rows)]),
        "mean_of_row_means": mean_of_row_means(config, weights, batch),
    }


def expectations(config: Config, stored: Weights, rows: list[Row]) -> tuple[dict, Weights]:
    """Returns expected.json, and the gradients of the packed rows in double."""
    batch = pack(rows)
    losses: dict[str, dict] = {"packed": {}, "separate": {}}
    packed: dict[str, Weights] = {}
    apart: dict[str, dict[str, float]] = {}
    for precision, dtype in DTYPES.items():
        weights = cast(stored, dtype)
        packed_loss = loss(config, weights, [batch])
        separate_loss = loss(config, weights, separate(rows))
        losses["packed"][precision] = shortest(packed_loss)
        losses["separate"][precision] = shortest(separate_loss)
        packed[precision] = gradients(packed_loss, weights)
        apart[precision] = differences(packed[precision], gradients(separate_loss, weights))

    exact, table = packed["double"], config.position_table
    broken = {}
    for fault, value in broken_losses(config, weights, batch, rows).items():
        wrong = differences(gradients(value, weights), exact)
        broken[fault] = {
            "loss": shortest(value),
            "positions": wrong[table],
            "worst": max(wrong.values()),
        }
    first = config.first_position_row
    row_0 = token_losses(config, weights, pack(rows[:1]))[0]
    has_target = pack(rows[:1]).targets[0] >= 0
    return {
        "rows": len(rows),
        "targets": batch.n_targets,
        "loss": losses,
        "worst_difference": {precision: max(d.values()) for precision, d in apart.items()},
        "positions": {
            "tensor": table,
            "rows": list(range(first, first + 8)),
            "norms": exact[table][first : first + 8].norm(dim=1).tolist(),
            "difference": {precision: d[table] for precision, d in apart.items()},
        },
        "broken": broken,
        "parameters": {
            name: {
                "largest_gradient": largest(g),
                "difference": {precision: d[name] for precision, d in apart.items()},
            }
            for name, g in exact.items()
        },
        "row_0_losses": [
            shortest(value) if here else None
            for value, here in zip(row_0, has_target, strict=True)
        ],
    }, exact


def learning_rate(step: int) -> float:
    """Linear warm-up, then cosine; steps count from 1."""
    top, bottom = TRAINING["learning_rate"], TRAINING["final_learning_rate"]
    warmup = TRAINING["warmup_steps"]
    if step <= warmup:
        return top * step / warmup
    progress = (step - warmup) / (TRAINING["steps"] - warmup)
    return bottom + 0.5 * (top - bottom) * (1 + math.cos(math.pi * progress))


def train(config: Config, weights: Weights, batches: list[Batch]) -> dict[str, list[float]]:
    """Returns the loss of every step, and the norm of its gradient before clipping."""
    matrices = [w for w in weights.values() if w.dim() == 2]
    vectors = [w for w in weights.values() if w.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": TRAINING["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=tuple(TRAINING["betas"]),
        eps=TRAINING["epsilon"],
        foreach=False,
    )
    losses, norms = [], []
    for step, batch in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        value = loss(config, weights, [batch])
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(
            weights.values(), TRAINING["clip_norm"], foreach=False
        )
        optimizer.step()
        losses.append(shortest(value))
        norms.append(shortest(norm))
    return {"losses": losses, "gradient_norms": norms}


def make_model(model: str, rows: list[Row], blocks: tuple[int, ...]) -> None:
    """Writes the folder of one model."""
    config = Config(model, **SIZES)
    stored = random_weights(config, WEIGHTS_SEED[model])
    expected, exact = expectations(config, stored, rows)
    order = [
        rows_of_step(blocks, TRAINING["seed"], step, TRAINING["rows_per_step"])
        for step in range(1, TRAINING["steps"] + 1)
    ]
    batches = [pack(rows[r] for r in chosen) for chosen in order]
    runs = {p: train(config, cast(stored, dtype), batches) for p, dtype in DTYPES.items()}

    folder = GOLDEN / model
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", hugging_face_config(config, SEPARATOR))
    save_file(stored, folder / "weights.safetensors", metadata={"format": "pt"})
    save_file(exact, folder / "gradients.safetensors", metadata={"format": "pt"})
    write_json(folder / "expected.json", expected)
    write_json(
        folder / "training.json",
        TRAINING
        | {"rows": [r for chosen in order[:10] for r in chosen]}
        | runs["float"]
        | {"in_double": runs["double"]},
    )
    report(model, expected, runs)


def report(model: str, expected: dict, runs: dict) -> None:
    """Prints the results for the person who made the files."""
    print(f"{model}: {expected['targets']} targets, loss {expected['loss']['packed']['double']}")
    for precision in DTYPES:
        worst = expected["worst_difference"][precision]
        positions = expected["positions"]["difference"][precision]
        print(f"  packed - separate, {precision}: positions {positions:.1e}, worst {worst:.1e}")
    for fault, found in expected["broken"].items():
        print(f"  broken {fault}: positions {found['positions']:.1e}, worst {found['worst']:.1e}")
    single, double = (np.array(runs[precision]["losses"]) for precision in DTYPES)
    print(f"  training: loss {single[0]:.4f} to {single[-1]:.4f}", end="; ")
    print(f"float - double {abs(single - double).max():.1e}")


def make_orders() -> None:
    """Writes orders.json: the loader's order for more blocks than the dataset has."""
    cases = [
        (1234, 0, [5]),
        (1234, 1, [3] * 39 + [2]),
        (2**63 - 1, 7, [4, 4, 1] * 11),
        (0, 0, [1] * 17),
    ]
    write_json(
        GOLDEN / "orders.json",
        [
            {"seed": s, "epoch": e, "blocks": b, "order": epoch_order(tuple(b), s, e)}
            for s, e, b in cases
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Make tests/golden/train-1.")
    parser.add_argument("--pack", metavar="PROGRAM", help="pack the corpus again with PROGRAM")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arguments.pack:
        pack_corpus(arguments.pack)
    rows, blocks = read_dataset(GOLDEN / "dataset")
    for model in MODELS:
        make_model(model, rows, blocks)
    make_orders()


if __name__ == "__main__":
    main()
