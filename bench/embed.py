"""Embedding of image files against the network's throughput on prepared tensors; and the time to read cached vectors.

`embed/10000 jpegs`: the pipeline reads, hashes, decodes and prepares 10,000 JPEGs of COCO's size while EfficientNet-Lite0 computes;
the peer is the same network on prepared batches. The two take turns, 5,000 images at a time. `limit_ratio` is at most 1 if the
pipeline reaches 85 % of the network's throughput. `busy` is the share of all cores that the pipeline used. `work_ratio` is the
network's share of the pipeline's processor time, which depends little on other load of the machine. The images are the photos in
`$CROSSMATCH_DATA/photos` if they exist, else drawings; each file ends with different bytes, so that their hashes differ.

`cache/100000x1024`: so many cached vectors are read and checked; the peer reads the same numbers as one bare array.

    python bench/embed.py [--images 10000] [--batch 128] [--workers N] [--vectors 100000]
"""

from __future__ import annotations

import io
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image

from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.data.collection import Collection
from crossmatch.data.io.paths import available_cores, data_folder
from crossmatch.models.adapters.efficientnet import EfficientNetLite
from crossmatch.models.cache import Cache
from crossmatch.models.cache.cross_encoder_scores import BATCH
from crossmatch.models.cache.embeddings import EmbeddingCache, text_key
from crossmatch.models.embedding_pipeline import embed_images_of
from timing import make_parser, peak_mb, report

AT_LEAST = 0.85  # of the network's throughput
IN_SECONDS = 10  # limit for reading all cached vectors
SIDE, TURN = 640, 5_000  # pixels of the longer side, as in COCO; images that each side embeds in its turn


def jpegs() -> list[bytes]:
    """A few JPEGs of COCO's size."""
    photos = sorted(
        path for path in (data_folder() / "photos" / "images").glob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    if photos:
        pictures = (decode_image(path.read_bytes(), str(path)) for path in photos)
    else:
        from crossmatch.diorama.world import Diorama

        world = Diorama.make("test", images=32)
        pictures = (world.picture(n, 480) for n in range(32))
    files = []
    for picture in pictures:
        buffer = io.BytesIO()
        scale = SIDE / max(picture.size)
        picture.resize([round(scale * side) for side in picture.size], Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    return files


def files_of(folder: Path, count: int) -> dict[str, FileSlice]:
    """Write `count` different files."""
    files = {}
    for n, raw in enumerate(islice(cycle(jpegs()), count)):
        path = folder / f"{n:06d}.jpg"
        path.write_bytes(raw + n.to_bytes(8, "big"))  # a decoder stops at the end of the picture
        files[path.name] = FileSlice(path)
    return files


def pictures_case(count: int, batch: int, workers: int | None) -> None:
    model = EfficientNetLite("lite0")
    with tempfile.TemporaryDirectory() as folder:
        opener = ImageOpener(files_of(Path(folder), count), decode_image)
        names = list(opener.encoded)
        ready = [
            model.prepare_images([opener(name) for name in names[begin : begin + batch]])
            for begin in range(0, min(count, 4 * batch), batch)
        ]
        model.embed_prepared(ready[0])  # warm up
        ours = peer = work = own = 0.0
        for first in range(0, count, TURN):
            chosen = names[first : first + TURN]
            collection = Collection(chosen, ["c"], ("A caption.",), np.zeros((0, 2)), opener)
            start, spent = time.perf_counter(), time.process_time()
            vectors = embed_images_of(model, collection, batch=batch, workers=workers)
            ours, work = ours + time.perf_counter() - start, work + time.process_time() - spent
            start, spent, remaining, direct = time.perf_counter(), time.process_time(), len(chosen), []
            for tensors in cycle(ready):
                direct.append(model.embed_prepared(tensors[:remaining]))
                remaining -= len(direct[-1])
                if not remaining:
                    break
            peer, own = peer + time.perf_counter() - start, own + time.process_time() - spent
            if first == 0:
                n = min(len(vectors), sum(map(len, ready)))
                assert np.abs(vectors[:n] - np.concatenate(direct)[:n]).max() < 1e-4, "the pipeline changes the vectors"
    report(
        f"embed/{count} jpegs, efficientnet-lite0", ours, "the network on ready tensors", peer, limit_ratio=AT_LEAST * ours / peer,
        busy=work / ours / available_cores(), work_ratio=own / work, images_per_s=count / ours, peak_mb=peak_mb(),
    )  # fmt: skip


def cache_case(count: int, dimensions: int = 1024) -> None:
    rng = np.random.default_rng(0)
    keys = [text_key(str(n)) for n in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder))
        writer, vectors = EmbeddingCache.open(cache, "bench"), np.empty((count, dimensions), np.float32)
        for start in range(0, count, BATCH):
            batch = slice(start, start + BATCH)
            vectors[batch] = rng.standard_normal((len(keys[batch]), dimensions), dtype=np.float32)
            writer.put(keys[batch], vectors[batch])
        writer.close()
        np.save(Path(folder) / "whole.npy", vectors)
        started = time.perf_counter()
        reopened, cached = EmbeddingCache.open(cache, "bench"), np.empty_like(vectors)
        for start in range(0, count, BATCH):
            batch = slice(start, start + BATCH)
            rows = reopened.get(keys[batch])
            cached[batch] = np.stack([rows[key] for key in keys[batch]])
        ours = time.perf_counter() - started
        assert np.array_equal(cached, vectors)
        started = time.perf_counter()
        np.load(Path(folder) / "whole.npy")
        peer = time.perf_counter() - started
    report(
        f"cache/{count}x{dimensions}", ours, "numpy.load of one bare array", peer, limit_ratio=ours / IN_SECONDS, peak_mb=peak_mb()
    )


def main() -> None:
    parser = make_parser(__doc__, images=10_000, batch=BATCH, vectors=100_000)
    parser.add_argument("--workers", type=int, help="threads that decode (default: as in an evaluation)")
    options = parser.parse_args()
    cache_case(options.vectors)
    pictures_case(options.images, options.batch, options.workers)


if __name__ == "__main__":
    main()
