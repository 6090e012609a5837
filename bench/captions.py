"""Caption metrics against pycocoevalcap on the same captions: 5,000 candidates with five references each.

Uses the real captions in `$CROSSMATCH_DATA` (or ../shared/data) if they exist, else random words. Both sides get the same tokens,
and their numbers are compared before they are timed. The tokeniser is compared with Stanford's, including the start of Java.

    python bench/captions.py [--images 5000] [--repeat 3]

aac-metrics is measured too if it is installed. It requires an audio model that no caption metric uses; to install it without:
`pip install --no-deps aac-metrics==0.5.5 torchmetrics lightning-utilities`.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from crossmatch.captions.bleu import bleu
from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.captions.rouge import rouge_l
from timing import DATA, best_of, make_parser, peak_mb, report


def real_captions() -> tuple[list[str], list[list[str]]]:
    references: dict[str, list[str]] = {}
    with (DATA / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            references.setdefault(row["image_id"], []).append(row["caption"])
    candidates = json.loads((DATA / "captions/blip2_results_xe.json").read_text())
    return [candidates[i] for i in references], [texts[:5] for texts in references.values()]


def random_captions(images: int) -> tuple[list[str], list[list[str]]]:
    """Random words with English frequencies: the r-th most frequent one occurs 1/r times as often as the first."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 8_000)

    def caption() -> str:
        return " ".join(f"w{word}" for word in rng.choice(len(share), rng.integers(8, 14), p=share / share.sum())) + "."

    return [caption() for _ in range(images)], [[caption() for _ in range(5)] for _ in range(images)]


def aac_metrics() -> Callable[[list[str], list[list[str]]], list[float]] | None:
    """BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D of tokenised captions by aac-metrics; None if it is not installed."""
    sys.modules.setdefault("msclap", SimpleNamespace(CLAP=None))  # type: ignore[arg-type]
    try:
        from aac_metrics.functional import bleu, cider_d, rouge_l
    except ImportError:
        return None

    def score(candidates: list[str], references: list[list[str]]) -> list[float]:
        whole = [bleu(candidates, references, n=n, tokenizer=str.split)[0][f"bleu_{n}"] for n in (1, 2, 3, 4)]
        whole.append(rouge_l(candidates, references, tokenizer=str.split)[0]["rouge_l"])
        whole.append(cider_d(candidates, references, tokenizer=str.split)[0]["cider_d"])
        return [float(value) for value in whole]

    return score


def main() -> None:
    options = make_parser(__doc__, images=5_000, repeat=3).parse_args()
    try:
        from pycocoevalcap.bleu.bleu import Bleu
        from pycocoevalcap.cider.cider import Cider
        from pycocoevalcap.rouge.rouge import Rouge
        from pycocoevalcap.tokenizer import ptbtokenizer
    except ImportError:
        sys.exit("bench/captions.py needs pycocoevalcap. Install it with: pip install 'crossmatch[dev]'")

    real = (DATA / "coco/karpathy_test_captions.tsv").is_file()
    candidates, references = (part[: options.images] for part in (real_captions() if real else random_captions(options.images)))
    own, refs = [tokenise(c) for c in candidates], [[tokenise(r) for r in texts] for texts in references]
    gts = {n: [" ".join(t) for t in texts] for n, texts in enumerate(refs)}
    res = {n: [" ".join(t)] for n, t in enumerate(own)}
    size = f"{len(own)}x5"

    def fresh() -> CaptionCorpus:  # without cached counts
        return CaptionCorpus.from_tokens(own, refs)

    def ours() -> list[float]:
        corpus = fresh()
        return [s.value for s in (*bleu(corpus), *rouge_l(corpus), *cider_d(corpus))]

    def theirs() -> list[float]:
        return [
            *Bleu(4).compute_score(gts, res, verbose=0)[0],
            Rouge().compute_score(gts, res)[0],
            Cider().compute_score(gts, res)[0],
        ]

    np.testing.assert_allclose(ours(), theirs(), rtol=0, atol=1e-9)
    for name, function, peer, limit in (
        ("bleu", lambda: bleu(fresh()), lambda: Bleu(4).compute_score(gts, res, verbose=0), None),
        ("rouge-l", lambda: rouge_l(fresh()), lambda: Rouge().compute_score(gts, res), None),
        ("cider-d", lambda: cider_d(fresh()), lambda: Cider().compute_score(gts, res), None),
        ("bleu+rouge-l+cider-d", ours, theirs, 15),
    ):
        ours_s, peer_s = best_of(options.repeat, function, peer)
        more = {"limit_ratio": ours_s * limit / peer_s} if limit else {}
        report(f"captions/{name}/{size}", ours_s, "pycocoevalcap", peer_s, peak_mb=peak_mb(), **more)

    if (aac := aac_metrics()) is not None:
        texts = [res[n][0] for n in res], [gts[n] for n in gts]
        np.testing.assert_allclose(ours(), aac(*texts), rtol=0, atol=1e-6)
        ours_s, peer_s = best_of(1, ours, lambda: aac(*texts))
        report(f"captions/bleu+rouge-l+cider-d/{size}", ours_s, "aac-metrics", peer_s, peak_mb=peak_mb())

    # As a reward: small batches, with the document frequencies of the whole set.
    frequencies = DocumentFrequencies.from_corpus(fresh())
    batch = min(64, len(own))
    parts = [CaptionCorpus.from_tokens(own[i : i + batch], refs[i : i + batch]) for i in range(0, len(own) - batch + 1, batch)]

    def reward() -> None:
        for i in range(0, batch * len(parts), batch):
            cider_d(CaptionCorpus.from_tokens(own[i : i + batch], refs[i : i + batch]), frequencies)

    ours_s, peer_s = best_of(options.repeat, reward, lambda: Cider().compute_score(gts, res))
    count = batch * len(parts)
    report(f"captions/cider-d-reward/{count} in batches of {batch}", ours_s, "pycocoevalcap, all at once", peer_s, peak_mb=peak_mb(),
           limit_ratio=ours_s * 640 / count)  # fmt: skip

    if shutil.which("java"):
        texts = [text.replace("\n", " ") for group in (candidates, *references) for text in group]
        jar = Path(ptbtokenizer.__file__).parent / ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("\n".join(texts))
            file.flush()
            command = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase", file.name]
            ours_s, java_s = best_of(
                options.repeat,
                lambda: [tokenise(text) for text in texts],
                lambda: subprocess.run(command, capture_output=True, check=True),
            )
        report(f"captions/tokenise/{len(texts)}", ours_s, "Stanford PTBTokenizer 3.4.1", java_s, peak_mb=peak_mb(),
               limit_ratio=ours_s / java_s)  # fmt: skip


if __name__ == "__main__":
    main()
