#!/usr/bin/env python3
"""Other programs' way from JSONL to packed GPT-2 tokens, one program per call of this script.

    PYTHON bench/pack-rivals.py RIVAL CORPUS.jsonl TOKENIZER.json FOLDER

bench/pack.py calls it and measures the process. RIVAL is

    trl        datasets reads the JSONL and maps Hugging Face's tokenizer over it, TRL's
               pack_dataset packs best-fit decreasing and splits long documents
    gigatoken  gigatoken reads and tokenises, then the same pack_dataset
    datatrove  its reader and its DocumentTokenizer; it only lays tokens end to end

Every document is ended by <|endoftext|>; rows have 2048 tokens. FOLDER gets the result and a
file `rows`, the number of rows.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

SEQ_LEN = 2048
SEPARATOR = "<|endoftext|>"

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread, as for everybody
os.environ["RAYON_NUM_THREADS"] = "1"


def pack(dataset: Any, folder: Path) -> None:
    from trl.data_utils import pack_dataset

    # The strategy that splits long documents instead of cutting them off has had two names.
    try:
        packed = pack_dataset(dataset, SEQ_LEN, strategy="bfd_split")
    except ValueError:
        packed = pack_dataset(dataset, SEQ_LEN, strategy="bfd-requeue")
    packed.save_to_disk(folder / "packed")
    (folder / "rows").write_text(str(len(packed)))


def trl(corpus: str, tokenizer_file: str, folder: Path) -> None:
    import datasets
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_file)
    end = [tokenizer.token_to_id(SEPARATOR)]

    def tokenize(batch: dict) -> dict:
        found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [encoding.ids + end for encoding in found]}

    dataset = datasets.load_dataset("json", data_files=corpus, split="train",
                                    cache_dir=str(folder / "cache"))
    dataset = dataset.map(tokenize, batched=True, remove_columns=dataset.column_names)
    pack(dataset, folder)


def gigatoken(corpus: str, tokenizer_file: str, folder: Path) -> None:
    import datasets
    import gigatoken as library
    import numpy
    import pyarrow

    tokenizer = library.Tokenizer(tokenizer_file)
    added = json.loads(Path(tokenizer_file).read_text())["added_tokens"]
    end = next(token["id"] for token in added if token["content"] == SEPARATOR)
    found = tokenizer.encode_files(library.JsonlFileSource([corpus]), parallel=False)
    offsets = numpy.asarray(found.layout.offsets.data, numpy.int64)
    ids = numpy.insert(numpy.asarray(found.layout.content.data), offsets[1:], end)
    offsets = offsets + numpy.arange(len(offsets))
    column = pyarrow.LargeListArray.from_arrays(offsets, ids.astype(numpy.int32))
    table = pyarrow.table({"input_ids": column})
    pack(datasets.Dataset(datasets.table.InMemoryTable(table)), folder)


def datatrove(corpus: str, tokenizer_file: str, folder: Path) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    path = Path(corpus)
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(path.parent), glob_pattern=path.name),
            DocumentTokenizer(str(folder / "tokens"), tokenizer_file, eos_token=SEPARATOR,
                              shuffle_documents=False),
        ],
        tasks=1, workers=1, logging_dir=str(folder / "logs"),
    ).run()
    n_bytes = sum(file.stat().st_size for file in (folder / "tokens").rglob("*.ds"))
    (folder / "rows").write_text(str(-(-n_bytes // 2 // SEQ_LEN)))


RIVALS = {f.__name__: f for f in (trl, gigatoken, datatrove)}

if __name__ == "__main__":
    RIVALS[sys.argv[1]](sys.argv[2], sys.argv[3], Path(sys.argv[4]))
