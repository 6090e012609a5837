"""Caption metrics against pycocoevalcap on the same captions: 5,000 candidates with five references each.

Takes the real captions of `$CROSSMATCH_DATA` (or ../shared/data), else words drawn at random. Both sides get the same tokens;
before any time is taken the numbers are compared. The tokeniser is compared with Stanford's, the start of Java included.

    python bench/captions.py [--images 5000] [--repeat 3]

aac-metrics takes part where it is there. It wants an audio model that no caption metric uses; without it:
`pip install --no-deps aac-metrics==0.5.5 torchmetrics lightning-utilities`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
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
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.rouge import rouge_l
from crossmatch.captions.tokenise import tokenise
from timing import best_of

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[2] / "shared" / "data")


def real_captions() -> tuple[list[str], list[list[str]]]:
    references: dict[str, list[str]] = {}
    with (DATA / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            references.setdefault(row["image_id"], []).append(row["caption"])
    candidates = json.loads((DATA / "captions/blip2_results_xe.json").read_text())
    return [candidates[i] for i in references], [texts[:5] for texts in references.values()]


def made_captions(images: int) -> tuple[list[str], list[list[str]]]:
    """Words drawn as often as words are in English: the r-th most frequent one 1/r times as often as the first."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 8_000)

    def caption() -> str:
        return " ".join(f"w{word}" for word in rng.choice(len(share), rng.integers(8, 14), p=share / share.sum())) + "."

    return [caption() for _ in range(images)], [[caption() for _ in range(5)] for _ in range(images)]


def aac_metrics() -> Callable[[list[str], list[list[str]]], list[float]] | None:
    """BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D of the corpus by aac-metrics on captions that are cut into words already."""
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


def report(workload: str, ours: float, peer: str, theirs: float, limit: float | None = None) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = {"workload": f"captions/{workload}", "ours_s": round(ours, 4), "peer": peer, "peer_s": round(theirs, 4),
            "ratio": round(theirs / ours, 2), "peak_mb": round(peak)}  # fmt: skip
    if limit is not None:
        line["limit_ratio"] = round(ours / limit, 3)
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    try:
        from pycocoevalcap.bleu.bleu import Bleu
        from pycocoevalcap.cider.cider import Cider
        from pycocoevalcap.rouge.rouge import Rouge
        from pycocoevalcap.tokenizer import ptbtokenizer
    except ImportError:
        sys.exit("bench/captions.py needs pycocoevalcap. Install it with: pip install 'crossmatch[dev]'")

    real = (DATA / "coco/karpathy_test_captions.tsv").is_file()
    candidates, references = (part[: options.images] for part in (real_captions() if real else made_captions(options.images)))
    own, refs = [tokenise(c) for c in candidates], [[tokenise(r) for r in texts] for texts in references]
    gts = {n: [" ".join(t) for t in texts] for n, texts in enumerate(refs)}
    res = {n: [" ".join(t)] for n, t in enumerate(own)}
    size = f"{len(own)}x5"

    def fresh() -> Corpus:  # nothing is kept from the run before
        return Corpus.of_tokens(own, refs)

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
    for name, mine, peer, limit in (
        ("bleu", lambda: bleu(fresh()), lambda: Bleu(4).compute_score(gts, res, verbose=0), None),
        ("rouge-l", lambda: rouge_l(fresh()), lambda: Rouge().compute_score(gts, res), None),
        ("cider-d", lambda: cider_d(fresh()), lambda: Cider().compute_score(gts, res), None),
        ("bleu+rouge-l+cider-d", ours, theirs, 15),
    ):
        mine_s, peer_s = best_of(options.repeat, mine, peer)
        report(f"{name}/{size}", mine_s, "pycocoevalcap", peer_s, peer_s / limit if limit else None)

    if (aac := aac_metrics()) is not None:
        texts = [res[n][0] for n in res], [gts[n] for n in gts]
        np.testing.assert_allclose(ours(), aac(*texts), rtol=0, atol=1e-6)
        mine_s, peer_s = best_of(1, ours, lambda: aac(*texts))
        report(f"bleu+rouge-l+cider-d/{size}", mine_s, "aac-metrics", peer_s)

    # As a reward: small batches, the document frequencies of the whole set kept.
    kept = Frequencies.of(fresh())
    batch = min(64, len(own))
    parts = [Corpus.of_tokens(own[i : i + batch], refs[i : i + batch]) for i in range(0, len(own) - batch + 1, batch)]

    def reward() -> None:
        for i in range(0, batch * len(parts), batch):
            cider_d(Corpus.of_tokens(own[i : i + batch], refs[i : i + batch]), kept)

    whole_s, peer_s = best_of(options.repeat, reward, lambda: Cider().compute_score(gts, res))
    report(
        f"cider-d-reward/{batch * len(parts)} in batches of {batch}",
        whole_s,
        "pycocoevalcap, all at once",
        peer_s,
        batch * len(parts) / 640,
    )

    if shutil.which("java"):
        texts = [
            text.replace("\n", " ")
            for group in (candidates, *references)
            for text in (group if isinstance(group, list) else [group])
        ]
        jar = Path(ptbtokenizer.__file__).parent / ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("\n".join(texts))
            file.flush()
            words = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase", file.name]
            mine_s, java_s = best_of(
                options.repeat,
                lambda: [tokenise(text) for text in texts],
                lambda: subprocess.run(words, capture_output=True, check=True),
            )
        report(f"tokenise/{len(texts)}", mine_s, "Stanford PTBTokenizer 3.4.1", java_s, java_s)


if __name__ == "__main__":
    main()
