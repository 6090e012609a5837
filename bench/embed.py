"""Embedding pictures from their files against the model's own throughput on tensors that are ready; and what the cache costs.

`embed/10000 jpegs`: the pipeline reads, hashes, decodes and prepares 10,000 JPEGs of COCO's size while EfficientNet-Lite0 computes;
the peer is the same network on batches that were prepared before the clock started. The two take turns, 5,000 pictures at a time,
and times are added up. At least 85 % of the model's own throughput is asked for: `limit_ratio` is at most 1 then. `busy` is how
much of all cores the pipeline used, and `work_ratio` the network's share of its processor time: what can be reached where both
sides keep all cores busy, and the one number here that other work on the machine hardly changes. The pictures are the real photos
in `$CROSSMATCH_DATA/photos` where they are there, else drawings; each file has a few bytes of its own behind the picture, so that
none of them is known to be another.

`cache/100000x1024`: as many kept vectors are found again and checked; the peer reads the same numbers as one bare array.

    python bench/embed.py [--images 10000] [--batch 128] [--workers N] [--vectors 100000]
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image

from crossmatch.benchmarks.formats.gathered import Pictures, Span, decoded
from crossmatch.core.collection import Collection
from crossmatch.core.places import cores, data_folder
from crossmatch.models.cache import BATCH
from crossmatch.models.efficientnet import EfficientNetLite
from crossmatch.models.embedding_cache import EmbeddingShelf, key_of, text_key
from crossmatch.models.pipeline import image_vectors

AT_LEAST = 0.85  # of the model's own throughput
IN_SECONDS = 10  # all kept vectors must be there
SIDE, TURN = 640, 5_000  # pixels of the longer side, as in COCO; pictures before the other side takes its turn


def jpegs() -> list[bytes]:
    """Some pictures as JPEGs of COCO's size."""
    photos = sorted(
        path for path in (data_folder() / "photos" / "images").glob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    if photos:
        pictures = (decoded(path.read_bytes(), str(path)) for path in photos)
    else:
        from crossmatch.diorama.world import Diorama

        world = Diorama.make("test", images=32)
        pictures = (world.picture(n, 480) for n in range(32))
    found = []
    for picture in pictures:
        held = io.BytesIO()
        scale = SIDE / max(picture.size)
        picture.resize([round(scale * side) for side in picture.size], Image.Resampling.LANCZOS).save(held, "JPEG", quality=90)
        found.append(held.getvalue())
    return found


def files_of(folder: Path, count: int) -> dict[str, Span]:
    """So many files, all of them different."""
    stored = {}
    for n, raw in enumerate(islice(cycle(jpegs()), count)):
        path = folder / f"{n:06d}.jpg"
        path.write_bytes(raw + n.to_bytes(8, "big"))  # a decoder stops at the end of the picture
        stored[path.name] = Span(path)
    return stored


def pictures_case(count: int, batch: int, workers: int | None) -> dict[str, object]:
    model = EfficientNetLite("lite0")
    with tempfile.TemporaryDirectory() as place:
        opener = Pictures(files_of(Path(place), count), decoded)
        names = list(opener.stored)
        ready = [
            model.prepare_images([opener(name) for name in names[at : at + batch]]) for at in range(0, min(count, 4 * batch), batch)
        ]
        model.embed_prepared(ready[0])  # what is made once is made now
        ours = peer = work = own = 0.0
        for first in range(0, count, TURN):
            chosen = names[first : first + TURN]
            held = Collection(chosen, ["c"], ("A caption.",), np.zeros((0, 2)), opener)
            begun, spent = time.perf_counter(), time.process_time()
            found = image_vectors(model, held, batch=batch, workers=workers)
            ours, work = ours + time.perf_counter() - begun, work + time.process_time() - spent
            begun, spent, left, alone = time.perf_counter(), time.process_time(), len(chosen), []
            for tensors in cycle(ready):
                alone.append(model.embed_prepared(tensors[:left]))
                left -= len(alone[-1])
                if not left:
                    break
            peer, own = peer + time.perf_counter() - begun, own + time.process_time() - spent
            if first == 0:
                n = min(len(found), sum(map(len, ready)))
                assert np.abs(found[:n] - np.concatenate(alone)[:n]).max() < 1e-4, "the pipeline changes the vectors"
    return {
        "workload": f"embed/{count} jpegs, efficientnet-lite0", "ours_s": round(ours, 2), "peer": "the network on ready tensors",
        "peer_s": round(peer, 2), "ratio": round(peer / ours, 3), "limit_ratio": round(AT_LEAST * ours / peer, 3),
        "busy": round(work / ours / cores(), 2), "work_ratio": round(own / work, 3), "images_per_s": round(count / ours, 1),
    }  # fmt: skip


def cache_case(count: int, dimensions: int = 1024) -> dict[str, object]:
    rng = np.random.default_rng(0)
    keys = [text_key(str(n)) for n in range(count)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / key_of("bench")
        shelf, whole = EmbeddingShelf(folder, "bench", print), np.empty((count, dimensions), np.float32)
        for at in range(0, count, BATCH):
            whole[at : at + BATCH] = rng.standard_normal((len(keys[at : at + BATCH]), dimensions), dtype=np.float32)
            shelf.keep(keys[at : at + BATCH], whole[at : at + BATCH])
        shelf.close()
        np.save(Path(place) / "whole.npy", whole)
        begun = time.perf_counter()
        again, found = EmbeddingShelf(folder, "bench", print), np.empty_like(whole)
        for at in range(0, count, BATCH):
            rows = again.find(keys[at : at + BATCH])
            found[at : at + BATCH] = np.stack([rows[key] for key in keys[at : at + BATCH]])
        ours = time.perf_counter() - begun
        assert np.array_equal(found, whole)
        begun = time.perf_counter()
        np.load(Path(place) / "whole.npy")
        peer = time.perf_counter() - begun
    return {
        "workload": f"cache/{count}x{dimensions}", "ours_s": round(ours, 3), "peer": "numpy.load of one bare array",
        "peer_s": round(peer, 3), "ratio": round(peer / ours, 3), "limit_ratio": round(ours / IN_SECONDS, 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--workers", type=int, help="threads that decode (default: what an evaluation takes)")
    parser.add_argument("--vectors", type=int, default=100_000)
    options = parser.parse_args()
    cases = (lambda: cache_case(options.vectors), lambda: pictures_case(options.images, options.batch, options.workers))
    for case in cases:
        line = case()
        line["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
