"""Renders chats by transformers' apply_chat_template, with Jinja templates that mark what the
assistant generates. Run by the Python that has transformers.

    python chat_templates.py TOKENIZER.json < {"FORMAT": [conversation, ...]}

The answer is {"FORMAT": [[ids, mask], ...]}. The templates were written for this test after those of
the families, without tools, and with {% generation %} around what is trained. They differ from what is
published in two places. Mistral's put the system message into a user's message only if that is the last
of all, so that a finished conversation loses it; here it goes before the last message of the user, as in
mistral-common. Phi's leave out an empty system message; here it is a turn.
"""

import json
import sys

from transformers import PreTrainedTokenizerFast

GENERATED = "{% generation %}{{ CONTENT }}{{ 'END' }}{% endgeneration %}"


def generated(content: str, end: str) -> str:
    return GENERATED.replace("CONTENT", content).replace("END", end)


def each(turn: str, assistant: str) -> str:
    return (
        "{% for message in messages %}{% if message['role'] == 'assistant' %}"
        + assistant
        + "{% else %}"
        + turn
        + "{% endif %}{% endfor %}"
    )


SYSTEM_FIRST = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
)
CHATML = each(
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}",
    "{{ '<|im_start|>assistant\\n' }}" + generated("message['content']", "<|im_end|>") + "{{ '\\n' }}",
)
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MISTRAL = (
    SYSTEM_FIRST
    + "{{ '<s>' }}{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    + each(
        "{{ '[INST]SPACE' + (system if message == users[-1] else '') + message['content'] + '[/INST]' }}",
        generated("'SPACE' + message['content']TRIM", "</s>"),
    )
)
TEMPLATES = {
    "chatml": CHATML,
    "qwen2.5": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
    + QWEN
    + "<|im_end|>\\n' }}{% endif %}"
    + CHATML,
    "llama3": "{{ '<|begin_of_text|>' }}"
    + each(
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
        " + message['content'] | trim + '<|eot_id|>' }}",
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
        + generated("message['content'] | trim", "<|eot_id|>"),
    ),
    "gemma": SYSTEM_FIRST
    + "{{ '<bos>' }}"
    + each(
        "{{ '<start_of_turn>user\\n' + (system if loop.first else '') + message['content'] | trim"
        " + '<end_of_turn>\\n' }}",
        "{{ '<start_of_turn>model\\n' }}"
        + generated("message['content'] | trim", "<end_of_turn>")
        + "{{ '\\n' }}",
    ),
    "mistral": MISTRAL.replace("SPACE", "").replace("TRIM", ""),
    "mistral-v3": MISTRAL.replace("SPACE", " ").replace("TRIM", " | trim"),
    "phi": each(
        "{{ '<|' + message['role'] + '|>' + '\\n' + message['content'] + '<|end|>' + '\\n' }}",
        "{{ '<|assistant|>\\n' }}" + generated("message['content']", "<|end|>") + "{{ '\\n' }}",
    ),
    "zephyr": each(
        "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '</s>' }}{{ '\\n' }}",
        "{{ '<|assistant|>\\n' }}" + generated("message['content']", "</s>") + "{{ '\\n' }}",
    ),
    "plain": each(
        "{{ message['role'] | capitalize + ':\\n' + message['content'] + '\\n\\n' }}",
        "{{ 'Assistant:\\n' }}" + generated("message['content']", "\\n\\n"),
    ),
}


def main() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1])
    answers = {}
    for name, conversations in json.load(sys.stdin).items():
        answers[name] = []
        for messages in conversations:
            found = tokenizer.apply_chat_template(
                messages,
                chat_template=TEMPLATES[name],
                tokenize=True,
                return_dict=True,
                return_assistant_tokens_mask=True,
                add_special_tokens=False,
            )
            answers[name].append([list(found["input_ids"]), list(found["assistant_masks"])])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
