"""Language models of transformers without images: the likelihood of a text, and the answer to a prompt."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.data.io.user_code_errors import describe_error
from crossmatch.models.adapters.transformers.loading import (
    ModelFiles,
    import_transformers,
    load_network,
    load_tokenizer,
    locate_model,
    silence_transformers,
)
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.models.files.model_folder import hash_weights

GGUF = "*.gguf"
LONGEST = 512  # tokens of a text whose likelihood is computed
ANSWER = 120  # tokens of an answer


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model on this machine, in float32."""

    name: str
    net: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def load(cls, name: str) -> LanguageModel:
        """Load a folder with a model of transformers or one `.gguf` file, such a file, or a model of the Hugging Face cache."""
        path = Path(name)
        gguf_files = [path] if path.is_file() and path.suffix == ".gguf" else sorted(path.glob(GGUF)) if path.is_dir() else []
        if gguf_files and not (path / "config.json").exists():
            if len(gguf_files) > 1:
                raise CrossmatchError(f"{path} has {len(gguf_files)} gguf files, first {gguf_files[0].name}. Name one of them.")
            net, tokenizer = _load_gguf(gguf_files[0])
            label = gguf_files[0].stem
        else:
            files = locate_model(name)
            net, tokenizer = load_network(files, _causal_architecture(files)), load_tokenizer(files)
            label = files.name
        return cls(f"lm:{label}|weights:{hash_weights(net)}", net, tokenizer)

    def log_likelihoods(self, texts: Sequence[str]) -> FloatArray:
        """Return the mean log-probability of the tokens of each text, given those before them.

            s(t) = 1/n · Σ_i log p(w_i | w_0 … w_{i-1})

        w_0 is the start token; for a model without one, the first token is given and not counted. A text without a token to predict
        is an error. Texts are processed one at a time, so that padding changes no bit; a text is truncated after 512 tokens.
        """
        return np.asarray([self._mean_log_probability(text) for text in texts], dtype=np.float64)

    def _mean_log_probability(self, text: str) -> float:
        import torch

        text_tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"][:LONGEST]
        start = self.tokenizer.bos_token_id
        tokens = ([start] if start is not None else []) + list(text_tokens)
        if len(tokens) < 2:
            raise CrossmatchError(f"{text!r:.60} has too few tokens for {self.name}. Remove it.")
        with torch.inference_mode():
            logits = self.net(input_ids=torch.tensor([tokens])).logits[0, :-1].double()
            log_probabilities = torch.log_softmax(logits, dim=1).gather(1, torch.tensor(tokens[1:])[:, None])
        return float(log_probabilities.mean())

    def write(self, prompt: str) -> str:
        """Return the greedy answer to a prompt; a chat model gets it as a user message."""
        import torch

        with self.lock, torch.inference_mode(), silence_transformers():
            prompt_tokens = torch.tensor([self._encode_prompt(prompt)])
            end_token = self.tokenizer.eos_token_id
            out = self.net.generate(
                prompt_tokens,
                attention_mask=torch.ones_like(prompt_tokens),
                do_sample=False,
                max_new_tokens=ANSWER,
                pad_token_id=end_token if end_token is not None else 0,
            )
        return str(self.tokenizer.decode(out[0, prompt_tokens.shape[1] :], skip_special_tokens=True)).strip()

    def _encode_prompt(self, prompt: str) -> list[int]:
        if not getattr(self.tokenizer, "chat_template", None):
            return list(self.tokenizer(prompt, add_special_tokens=True)["input_ids"])
        chat = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _causal_architecture(files: ModelFiles) -> str:
    """Return the architecture if it generates text."""
    architecture = files.architecture()
    if not architecture.endswith(("ForCausalLM", "LMHeadModel")):
        raise CrossmatchError(f"{files.folder} is a {architecture}, which generates no text. Use a causal language model.")
    return architecture


def _load_gguf(path: Path) -> tuple[Any, Any]:
    """Load the network and the tokenizer of a gguf file, with dequantized weights."""
    transformers = import_transformers()
    for library in ("gguf", "accelerate"):  # transformers needs both
        if importlib.util.find_spec(library) is None:
            raise MissingDependencyError(f"{library} (to read gguf files)", "text")
    where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        with silence_transformers():
            net = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **where)
            tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **where)
    except Exception as error:  # the library and the file system raise many types
        raise CrossmatchError(f"{path} cannot be loaded ({describe_error(error)}). Download it again.") from error
    for values in (*net.parameters(), *net.buffers()):  # the library forbids `float()` on a network from a gguf file
        values.data = values.data.float() if values.is_floating_point() else values.data
    net = net.eval()
    require_finite(net, str(path))
    return net.requires_grad_(False), tokenizer
