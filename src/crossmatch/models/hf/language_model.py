"""Language models of transformers without images: how likely a text is, and what they answer to a prompt."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.folder import weights_of
from crossmatch.models.hf.loading import Place, located, network, quiet, tokenizer_of, transformers_here

GGUF = "*.gguf"
LONGEST = 512  # tokens of a text whose likelihood is asked for
ANSWER = 120  # tokens of an answer


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model that is on this machine, in float32; a model of the same file gives the same numbers."""

    name: str
    net: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def load(cls, name: str) -> LanguageModel:
        """From a folder with a model of transformers, a folder with one `.gguf` file, that file, or the cache of Hugging Face."""
        path = Path(name)
        files = [path] if path.is_file() and path.suffix == ".gguf" else sorted(path.glob(GGUF)) if path.is_dir() else []
        if files and not (path / "config.json").exists():
            if len(files) > 1:
                raise CrossmatchError(f"{path} holds {len(files)} gguf files, first {files[0].name}. Name one of them.")
            net, tokenizer = _from_gguf(files[0])
            shown = files[0].stem
        else:
            place = located(name)
            net, tokenizer = network(place, _causal(place)), tokenizer_of(place)
            shown = place.name
        return cls(f"lm:{shown}|weights:{weights_of(net)}", net, tokenizer)

    def log_likelihoods(self, texts: Sequence[str]) -> FloatArray:
        """The mean log-probability of the tokens of each text, given those before them.

            s(t) = 1/n · Σ_i log p(w_i | w_0 … w_{i-1})

        w_0 is the token that begins a text; where a model has none, the first word is given, and not counted. A text without a
        token to predict is refused. One text at a time, so that no padding changes a bit; after 512 tokens a text is cut off.
        """
        return np.asarray([self._mean(text) for text in texts], dtype=np.float64)

    def _mean(self, text: str) -> float:
        import torch

        numbers = self.tokenizer(text, add_special_tokens=False)["input_ids"][:LONGEST]
        first = self.tokenizer.bos_token_id
        line = ([first] if first is not None else []) + list(numbers)
        if len(line) < 2:
            raise CrossmatchError(f"{text!r:.60} is too short for {self.name} to say how likely it is. Leave it out.")
        with torch.inference_mode():
            logits = self.net(input_ids=torch.tensor([line])).logits[0, :-1].double()
            chosen = torch.log_softmax(logits, dim=1).gather(1, torch.tensor(line[1:])[:, None])
        return float(chosen.mean())

    def write(self, prompt: str) -> str:
        """The likeliest answer to a prompt, token by token; a model for chats is asked as in a chat."""
        import torch

        with self.lock, torch.inference_mode(), quiet():
            numbers = torch.tensor([self._asked(prompt)])
            ends = self.tokenizer.eos_token_id
            out = self.net.generate(
                numbers,
                attention_mask=torch.ones_like(numbers),
                do_sample=False,
                max_new_tokens=ANSWER,
                pad_token_id=ends if ends is not None else 0,
            )
        return str(self.tokenizer.decode(out[0, numbers.shape[1] :], skip_special_tokens=True)).strip()

    def _asked(self, prompt: str) -> list[int]:
        if getattr(self.tokenizer, "chat_template", None):
            chat = [{"role": "user", "content": prompt}]
            text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        else:
            text = prompt
        return list(self.tokenizer(text, add_special_tokens=not getattr(self.tokenizer, "chat_template", None))["input_ids"])


def _causal(place: Place) -> str:
    """The architecture, if it writes texts."""
    named = place.architecture()
    if not named.endswith(("ForCausalLM", "LMHeadModel")):
        raise CrossmatchError(f"{place.folder} is a {named}, which does not write texts. Take a causal language model.")
    return named


def _from_gguf(path: Path) -> tuple[Any, Any]:
    """The network and the tokenizer in a gguf file, with its numbers unpacked."""
    transformers = transformers_here()
    for library in ("gguf", "accelerate"):  # transformers asks for both
        if importlib.util.find_spec(library) is None:
            raise MissingDependency(f"{library}, which reading such files takes", "text")
    where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        with quiet():
            net = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **where)
            tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **where)
    except Exception as error:  # the library's and the file's, of many kinds
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(f"{path} cannot be loaded ({type(error).__name__}: {said:.200}). Fetch it again.") from error
    for numbers in (*net.parameters(), *net.buffers()):  # the library forbids `float()` on what came from such a file
        numbers.data = numbers.data.float() if numbers.is_floating_point() else numbers.data
    net = net.eval()
    require_finite(net, str(path))
    return net.requires_grad_(False), tokenizer
