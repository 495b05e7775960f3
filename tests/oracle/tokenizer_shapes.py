"""Small byte-level tokenizers in the shapes of well-known ones."""

import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
LETTERS = "abcdefgh \n\t019é世界\u0301'ſ"


def random_text(rng, length):
    return "".join(rng.choice(LETTERS) for _ in range(length))


def alphabet():
    """Returns the visible character of each byte."""
    others = iter(range(256, 512))
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    return [chr(byte) if byte in printed else chr(next(others)) for byte in range(256)]


def added(token_id, content, **flags):
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
        **flags,
    }


def byte_level(prefix_space=False, use_regex=True):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def split(expression, behavior="Isolated", invert=False):
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": behavior,
        "invert": invert,
    }


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def document(vocabulary, merges, tokens=(), pre_tokenizer=None, **other):
    """Makes a tokenizer.json; keys of `other` that the document does not have go to its model."""
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": merges,
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(tokens),
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer or byte_level(),
        "post_processor": byte_level(),
        "decoder": byte_level(),
        "model": model,
    }
    for key, value in other.items():
        (whole if key in whole else model)[key] = value
    return whole


def bytes_only(tokens=(), **other):
    vocabulary = {symbol: byte for byte, symbol in enumerate(alphabet())}
    return document(vocabulary, [], tokens, **other)


def trained(seed, vocabulary_size=600):
    """Returns (vocabulary, merges) of a small BPE."""
    rng = random.Random(seed)
    words = [random_text(rng, rng.randint(1, 9)) for _ in range(60)]
    texts = ["".join(rng.choice(words) for _ in range(50)) for _ in range(40)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def all_pairs(vocabulary):
    """Returns every way to make a token of two, as files converted from ranks list them."""
    ranked = sorted(vocabulary, key=vocabulary.get)
    return [
        [token[:cut], token[cut:]]
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]


def families(seed):
    """Returns {name: tokenizer.json}: small files in the form of each family's own."""
    vocabulary, merges = trained(seed)
    n = len(vocabulary)
    spaced = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    template = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {},
    }
    gpt2 = document({**vocabulary, "<|endoftext|>": n}, spaced, post_processor=byte_level(True))
    gpt2["added_tokens"] = [added(n, "<|endoftext|>", normalized=True)]
    del gpt2["model"]["type"]  # as in the files of that time
    opt = document(
        {**vocabulary, "</s>": n, "<pad>": n + 1},
        spaced,
        [added(n, "</s>", normalized=True), added(n + 1, "<pad>", normalized=True)],
        post_processor=template,
    )
    llama3 = document(
        vocabulary,
        all_pairs(vocabulary),
        [added(n, "<|begin_of_text|>"), added(n + 1, "<|end_of_text|>")],
        sequence(split(CL100K), byte_level(use_regex=False)),
        ignore_merges=True,
        post_processor={"type": "Sequence", "processors": [byte_level(), template]},
    )
    qwen2 = document(
        vocabulary,
        spaced,
        [
            added(n, "<|endoftext|>"),
            added(n + 1, "<|im_start|>"),
            added(n + 2, "<tool>", special=False),
        ],
        sequence(split(QWEN2), byte_level(use_regex=False)),
        normalizer={"type": "NFC"},
        continuing_subword_prefix="",
        end_of_word_suffix="",
    )
    neox = document(
        {**vocabulary, "<|endoftext|>": n, "<|padding|>": n + 1},
        spaced,
        [added(n, "<|endoftext|>"), added(n + 1, "<|padding|>")]
        + [added(n + i, " " * i, special=False, normalized=True) for i in range(2, 9)],
        normalizer={"type": "NFC"},
    )
    starcoder = document(
        {"<|endoftext|>": n, "<fim_prefix>": n + 1, **vocabulary},
        merges,
        [added(n, "<|endoftext|>"), added(n + 1, "<fim_prefix>")],
        sequence({"type": "Digits", "individual_digits": True}, byte_level()),
        post_processor=None,
    )
    return {
        "gpt2": gpt2,
        "opt": opt,
        "llama3": llama3,
        "qwen2": qwen2,
        "neox": neox,
        "starcoder": starcoder,
    }
