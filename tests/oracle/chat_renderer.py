"""Chats as text, by a second implementation: each format is a function that says what its family's
template says. It reads nothing of common/chat.

    render("llama3", [{"role": "user", "content": "Hi"}])      # [Piece("<|begin_of_text|>", ...), ...]
    tokens(tokenizer, pieces)                                  # (ids, mask)
"""

import json
from dataclasses import dataclass, field

import tokenizers

# The special tokens of each format's tokenizers; the second is the separator of documents.
TOKENS = {
    "chatml": ["<|im_start|>", "<|endoftext|>", "<|im_end|>"],
    "qwen2.5": ["<|im_start|>", "<|endoftext|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
               "<|eot_id|>"],
    "gemma": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
    "mistral": ["<s>", "</s>", "[INST]", "[/INST]"],
    "mistral-v3": ["<s>", "</s>", "[INST]", "[/INST]"],
    "phi": ["<|system|>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"],
    "zephyr": ["<s>", "</s>"],
    "plain": ["<unk>", "<|endoftext|>"],
}  # fmt: skip
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
FORMATS = {
    "chatml": ("system", "user", "assistant", "tool"),
    "qwen2.5": ("system", "user", "assistant", "tool"),
    "llama3": ("system", "user", "assistant", "ipython"),
    "gemma": ("system", "user", "assistant"),
    "mistral": ("system", "user", "assistant"),
    "mistral-v3": ("system", "user", "assistant"),
    "phi": ("system", "user", "assistant"),
    "zephyr": ("system", "user", "assistant"),
    "plain": ("system", "user", "assistant", "tool"),
}


@dataclass(frozen=True)
class Piece:
    """A text, or a special token, and whether it is trained."""

    text: str
    is_token: bool = False
    trained: bool = False


@dataclass
class Rendering:
    """Collects the pieces of a conversation."""

    train_roles: tuple[str, ...] = ("assistant",)
    turn_end: str = "all"
    pieces: list[Piece] = field(default_factory=list)

    def token(self, name: str, trained: bool = False) -> None:
        self.pieces.append(Piece(name, True, trained))

    def text(self, text: str, trained: bool = False) -> None:
        if text:
            self.pieces.append(Piece(text, False, trained))


def is_trained(out: Rendering, message: dict) -> bool:
    if "train" in message:
        return message["train"]
    return message["role"] in out.train_roles


def ends(out: Rendering, messages: list[dict]) -> list[bool]:
    """Returns of which messages the end is trained."""
    trained = [is_trained(out, message) for message in messages]
    if out.turn_end == "none" or not any(trained):
        return [False] * len(messages)
    if out.turn_end == "all":
        return trained
    last = max(i for i, yes in enumerate(trained) if yes)
    return [i == last for i in range(len(messages))]


def calls_of(message: dict) -> list[str]:
    texts = []
    for call in message.get("tool_calls") or []:
        call = call.get("function", call)
        arguments = call["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        name = json.dumps(call["name"], ensure_ascii=False)
        texts.append(f'{{"name": {name}, "arguments": {arguments}}}')
    return texts


def chatml(out: Rendering, messages: list[dict]) -> None:
    trained_ends = ends(out, messages)
    for i, message in enumerate(messages):
        role, trained = message["role"], is_trained(out, message)
        content = message["content"] or ""
        if role == "tool":
            if i == 0 or messages[i - 1]["role"] != "tool":
                out.token("<|im_start|>")
                out.text("user\n<tool_response>\n")
            else:
                out.text("\n</tool_response>\n<tool_response>\n")
            out.text(content, trained)
            if i + 1 == len(messages) or messages[i + 1]["role"] != "tool":
                out.text("\n</tool_response>", trained_ends[i])
                out.token("<|im_end|>", trained_ends[i])
                out.text("\n")
            continue
        out.token("<|im_start|>")
        out.text(f"{role}\n")
        parts = [content] if content else []
        parts += [f"<tool_call>\n{call}\n</tool_call>" for call in calls_of(message)]
        out.text("\n".join(parts), trained)
        out.token("<|im_end|>", trained_ends[i])
        out.text("\n")


def qwen2_5(out: Rendering, messages: list[dict]) -> None:
    if messages[0]["role"] != "system":
        out.token("<|im_start|>")
        out.text(f"system\n{QWEN_SYSTEM}")
        out.token("<|im_end|>")
        out.text("\n")
    chatml(out, messages)


def llama3(out: Rendering, messages: list[dict]) -> None:
    out.token("<|begin_of_text|>")
    for message, end in zip(messages, ends(out, messages), strict=True):
        out.token("<|start_header_id|>")
        out.text(message["role"])
        out.token("<|end_header_id|>")
        out.text("\n\n")
        out.text(message["content"].strip(), is_trained(out, message))
        out.token("<|eot_id|>", end)


def gemma(out: Rendering, messages: list[dict]) -> None:
    out.token("<bos>")
    prefix = ""
    if messages[0]["role"] == "system":
        prefix, messages = messages[0]["content"] + "\n\n", messages[1:]
    for message, end in zip(messages, ends(out, messages), strict=True):
        trained = is_trained(out, message)
        out.token("<start_of_turn>")
        out.text(("model" if message["role"] == "assistant" else "user") + "\n")
        if message["role"] == "user":
            out.text(prefix, trained)
            prefix = ""
        out.text(message["content"].strip(), trained)
        out.token("<end_of_turn>", end)
        out.text("\n")


def mistral(out: Rendering, messages: list[dict], space: str = "") -> None:
    out.token("<s>")
    prefix = ""
    if messages[0]["role"] == "system":
        prefix, messages = messages[0]["content"] + "\n\n", messages[1:]
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    for i, end in enumerate(ends(out, messages)):
        message, trained = messages[i], is_trained(out, messages[i])
        if message["role"] == "user":
            out.token("[INST]")
            out.text(space)
            out.text(prefix if i == users[-1] else "", trained)
            out.text(message["content"], trained)
            out.token("[/INST]")
        else:
            out.text(space, trained)
            out.text(message["content"].strip() if space else message["content"], trained)
            out.token("</s>", end)


def mistral_v3(out: Rendering, messages: list[dict]) -> None:
    mistral(out, messages, " ")


def phi(out: Rendering, messages: list[dict]) -> None:
    for message, end in zip(messages, ends(out, messages), strict=True):
        out.token(f"<|{message['role']}|>")
        out.text("\n")
        out.text(message["content"], is_trained(out, message))
        out.token("<|end|>", end)
        out.text("\n")


def zephyr(out: Rendering, messages: list[dict]) -> None:
    for message, end in zip(messages, ends(out, messages), strict=True):
        out.text(f"<|{message['role']}|>\n")
        out.text(message["content"], is_trained(out, message))
        out.token("</s>", end)
        out.text("\n")


def plain(out: Rendering, messages: list[dict]) -> None:
    for message, end in zip(messages, ends(out, messages), strict=True):
        out.text(message["role"].capitalize() + ":\n")
        out.text(message["content"], is_trained(out, message))
        out.text("\n\n", end)


RENDERERS = {
    "chatml": chatml, "qwen2.5": qwen2_5, "llama3": llama3, "gemma": gemma, "mistral": mistral,
    "mistral-v3": mistral_v3, "phi": phi, "zephyr": zephyr, "plain": plain,
}  # fmt: skip


def render(
    name: str, messages: list[dict], train_roles: tuple[str, ...] = ("assistant",), turn_end: str = "all"
) -> list[Piece]:
    out = Rendering(train_roles, turn_end)
    RENDERERS[name](out, messages)
    return out.pieces


def separator_is_trained(name: str, messages: list[dict], train_roles, turn_end: str) -> bool:
    """Of the separator after the conversation: only the plain format has no end of its own."""
    out = Rendering(train_roles, turn_end)
    return name == "plain" and ends(out, messages)[-1]


def tokens(tokenizer: tokenizers.Tokenizer, pieces: list[Piece]) -> tuple[list[int], list[int]]:
    """Returns the ids and which of them are trained. Texts that are trained alike are one text."""
    ids: list[int] = []
    mask: list[int] = []
    runs: list[Piece] = []
    for piece in pieces:
        last = runs[-1] if runs else None
        if last and not (piece.is_token or last.is_token) and piece.trained == last.trained:
            runs[-1] = Piece(last.text + piece.text, False, piece.trained)
        else:
            runs.append(piece)
    tokenizer.encode_special_tokens = True  # content cannot plant a token
    for run in runs:
        found = [tokenizer.token_to_id(run.text)] if run.is_token else tokenizer.encode(run.text).ids
        ids += found
        mask += [int(run.trained)] * len(found)
    return ids, mask
