"""Hard negatives: of the embedded world, in files, in batches, and their effect on training."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.diorama.edits import CAPTION_EDITS, IMAGE_EDITS, is_true_of
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.world import Diorama
from crossmatch.models.zoo.clip import CLIP, CLIPConfig
from crossmatch.models.zoo.network_inputs import Vocabulary
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity
from crossmatch.train.data import hard_negatives
from crossmatch.train.data.hard_negatives import add_negatives, diorama_edits, edit_scene, is_wrong_image, text_edit, unedited_scene
from crossmatch.train.data.negative_files import NegativeFile
from crossmatch.train.data.sources import DataOptions, open_source
from crossmatch.train.data.training_set import ArrayStore, PixelStore, TrainingSet
from crossmatch.train.loop import CHECKPOINT_SECONDS, fit
from crossmatch.train.objectives import InfoNCEOptions
from crossmatch.train.objectives.info_nce import contrastive
from crossmatch.train.recipe import NegativeSettings, TrainSettings, load_recipe
from crossmatch.train.validation import measure_trials
from crossmatch.train.zoo_training import ZooTraining

sys.path.insert(0, str(Path(__file__).parents[1]))
from toy import stop_at_step

PIXELS = {"kind": "pixels", "side": 16}
SCENES = 25


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


# Edits


@pytest.fixture(scope="module")
def edits():
    return [edit for n in range(SCENES) for edit in edit_scene("train", n, count=7)]


def test_negative_caption_is_true_of_the_edited_scene_only(edits):
    for edit in edits:
        before, positive, negative = sample_scene("diorama", 0, "train", edit.number), edit.edit.positive, edit.edit.negative
        truth = [[is_true_of(text.caption.meaning, scene) for text in (positive, negative)] for scene in (before, edit.scene)]
        assert truth == [[True, False], [False, True]]


def test_edited_caption_is_a_caption_of_the_scene(edits):
    captions = Diorama.make("train", SCENES).captions
    assert all(captions[5 * edit.number + edit.place].text == edit.edit.positive.caption.text for edit in edits)


def test_every_scene_has_an_edit_and_all_categories_occur(edits):
    assert {edit.number for edit in edits} == set(range(SCENES))
    assert {edit.edit.category for edit in edits} == set(IMAGE_EDITS)
    edit_counts = Counter(edit.number for edit in edits)
    assert len({(edit.number, edit.edit.category) for edit in edits}) == sum(edit_counts.values())  # a category once for a scene


def test_edits_are_a_prefix_of_more_edits_and_depend_on_the_seed(edits):
    first = [next(edit_scene("train", n)) for n in range(SCENES)]
    of_more = {edit.number: edit for edit in reversed(edits)}
    assert first == [of_more[n] for n in range(SCENES)]
    assert first != [next(edit_scene("train", n, seed=1)) for n in range(SCENES)]


def test_wrong_image_shows_the_original_objects_without_the_edit(edits):
    for edit in edits:
        before, wrong_scene = sample_scene("diorama", 0, "train", edit.number), unedited_scene(edit, "train")
        assert not is_true_of(edit.edit.negative.caption.meaning, wrong_scene)
        assert wrong_scene != before

        def count_looks(scene):
            return Counter((t.kind, t.colour, t.texture, t.size) for t in scene.objects)

        assert count_looks(wrong_scene) == count_looks(before)


def test_text_edits_change_the_same_captions_and_allow_more_additions(edits):
    """As in SugarCrepe: the first possible one of the drawn categories of `CAPTION_EDITS`."""
    text_edits = [text_edit(image_edit, "train") for image_edit in edits]
    adds = {"add/obj", "add/att"}
    for image_edit, edit in zip(edits, text_edits, strict=True):
        scene = sample_scene("diorama", 0, "train", image_edit.number)
        assert edit.positive == image_edit.edit.positive
        assert is_true_of(edit.positive.caption.meaning, scene)
        assert not is_true_of(edit.negative.caption.meaning, scene)
        assert edit == image_edit.edit or edit.category in adds & set(image_edit.drawn)
        assert image_edit.drawn[-1] == image_edit.edit.category
    assert sum(edit.category in adds for edit in text_edits) > 2 * sum(image_edit.edit.category in adds for image_edit in edits)
    assert {edit.category for edit in text_edits} == set(CAPTION_EDITS)


def test_wrong_images_at_low_noise_are_wrong_at_high_noise():
    shares = {}
    for noise in (0.0, 0.2, 0.6, 1.0):
        settings = NegativeSettings("pairs", noise=noise)
        shares[noise] = {n for n in range(2000) if is_wrong_image(settings, "train", n, "replace/obj")}
    assert shares[0.0] == set() < shares[0.2] < shares[0.6] < shares[1.0] == set(range(2000))
    assert len(shares[0.2]) / 2000 == pytest.approx(0.2, abs=0.03)
    assert len(shares[0.6]) / 2000 == pytest.approx(0.6, abs=0.04)


def test_edits_are_cached(monkeypatch):
    settings = NegativeSettings("texts", each=2)
    first = diorama_edits("train", 5, settings)
    assert [row[:2] for row in first] == [(edit.number, edit.place) for n in range(5) for edit in edit_scene("train", n, 2)]
    monkeypatch.setattr(hard_negatives, "map_scene_parts", None)
    assert diorama_edits("train", 5, settings) == first
    with pytest.raises(TypeError):
        diorama_edits("train", 6, settings)


# The embedded world as data


def world(kind="pairs", images=12, features=PIXELS, **more):
    return open_source(
        "diorama", features, DataOptions(images=images, size="tiny", validation_images=6, hard=NegativeSettings(kind, **more))
    )


def test_diorama_with_negative_texts():
    train, validation = world("texts").load()
    assert len(train.store) == 12
    assert (validation.hard[:, 0] >= 6).all()  # validated by two images and two captions nevertheless
    captions = [c.text for c in Diorama.make("train", 12).captions]
    assert list(train.captions[:60]) == captions
    edits = [edit for n in range(12) for edit in edit_scene("train", n)]
    expected = sorted((edit.number, edit.place, text_edit(edit, "train").negative.text) for edit in edits)
    actual = [(i, c - 5 * i, train.captions[h]) for (i, c), (_, h) in zip(train.links.tolist(), train.hard.tolist(), strict=True)]
    assert sorted(actual) == expected
    assert (train.hard[:, 0] == -1).all()


def drawn(scene, style="camera"):
    from PIL.Image import Resampling

    from crossmatch.diorama.drawing import draw

    return np.asarray(draw(scene, style, 32).resize((16, 16), Resampling.BOX))


@pytest.mark.parametrize(("noise", "style"), [(0.0, "camera"), (1.0, "camera"), (0.5, "generator")])
def test_diorama_with_negative_pairs(noise, style):
    settings = NegativeSettings("pairs", noise=noise, style=style)
    train, _ = world(noise=noise, style=style).load()
    wrong_count = 0
    for (image, caption), (negative_image, _) in zip(train.links.tolist(), train.hard.tolist(), strict=True):
        edit = next(edit_scene("train", image))
        assert caption == 5 * image + edit.place
        is_wrong = is_wrong_image(settings, "train", image, edit.edit.category)
        wrong_count += is_wrong
        scene = unedited_scene(edit, "train") if is_wrong else edit.scene
        assert np.array_equal(train.store.take(np.array([negative_image]))[0].numpy(), drawn(scene, style))
        assert np.array_equal(train.store.take(np.array([image]))[0].numpy(), drawn(sample_scene("diorama", 0, "train", image)))
    assert (0 < wrong_count < 12) if noise == 0.5 else wrong_count == 12 * noise


def test_stored_regions_of_edited_scenes_equal_extracted_ones():
    from crossmatch.diorama.drawing import draw
    from crossmatch.models.zoo.region_extractors import ExtractorSettings
    from crossmatch.train.data.region_feature_cache import load_extractor

    train, _ = world(images=4, features={"lessons": 40}).load()
    hard_image = train.hard[2, 0]
    stored = train.store.take(np.array([hard_image, train.links[2, 0]]))
    edit = next(edit_scene("train", int(train.links[2, 0])))
    expected = load_extractor(ExtractorSettings(lessons=40)).regions(
        [draw(edit.scene), draw(sample_scene("diorama", 0, "train", edit.number))]
    )
    torch.testing.assert_close(stored.features, expected.features, atol=1e-2, rtol=1e-2)  # stored in half precision
    torch.testing.assert_close(stored.boxes, expected.boxes, atol=1e-6, rtol=0)
    assert torch.equal(stored.mask, expected.mask)


def test_all_kinds_share_links_and_noise_free_validation_trials():
    numbered_set = {kind: world(kind, style="generator").load() for kind in ("unused", "texts", "pairs")}
    numbered_set["noisy"] = world("pairs", style="generator", noise=1.0).load()
    links, trials = numbered_set["pairs"][0].links, numbered_set["pairs"][1]
    assert len(links) == 12
    for train, validation in numbered_set.values():
        assert train.links.tolist() == links.tolist()
        assert validation.digest == trials.digest
    assert numbered_set["unused"][0].hard is None
    assert (
        numbered_set["unused"][0].captions
        == open_source("diorama", PIXELS, DataOptions(images=12, size="tiny", validation_images=6)).load()[0].captions
    )
    for (image, caption), (negative_image, negative) in zip(trials.links.tolist(), trials.hard.tolist(), strict=True):
        edit = next(edit_scene("val", image))
        assert (caption, trials.captions[negative]) == (5 * image + edit.place, edit.edit.negative.text)
        assert np.array_equal(trials.store.take(np.array([negative_image]))[0].numpy(), drawn(edit.scene, "generator"))
    assert numbered_set["noisy"][0].digest != numbered_set["pairs"][0].digest


def test_unused_negatives_are_refused_outside_diorama(tmp_path):
    for data in (f"collection:{tmp_path}", f"precomp:{tmp_path}"):
        with pytest.raises(UsageError, match=r"negatives\.kind=unused applies to diorama only.*negatives\.kind=none"):
            open_source(data, PIXELS, DataOptions(hard=NegativeSettings("unused")))


def test_data_hash_depends_on_the_negatives():
    plain = open_source("diorama", PIXELS, DataOptions(images=12, size="tiny", validation_images=6)).digest
    digests = [world(kind).digest for kind in ("texts", "pairs", "unused")]
    digests += [world(noise=0.3).digest, world(style="generator").digest, world(seed=1).digest, world(each=2).digest]
    assert len({plain, *digests}) == 8
    assert world().digest == world().digest


# Batches and validation


def numbered_set(pairs, rows=7):
    """The pixels of image n are n, those of its negative 100 + n; captions are 'n' and 'not n'."""
    pictures = np.arange(rows, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    links = np.stack([np.arange(rows), np.arange(rows)], axis=1)
    data = TrainingSet(PixelStore(pictures), tuple(f"{n}" for n in range(rows)), links)
    more = (PixelStore(pictures + np.uint8(100)), np.arange(rows)) if pairs else ()
    return add_negatives(data, links, [f"not {n}" for n in range(rows)], *more)


class Reader(list):
    """Texts by number, as themselves."""

    def __getitem__(self, which):
        return [list.__getitem__(self, n) for n in which.tolist()]


@pytest.mark.parametrize("pairs", [False, True])
def test_batch_contains_the_negatives_of_its_rows(pairs):
    data = numbered_set(pairs)
    model = SimpleNamespace(as_regions=lambda pixels: pixels)
    model.match = SimpleNamespace(read_all=Reader)
    training = ZooTraining(model, None, data, data, TrainSettings(batch=3))
    images = []
    for batch in training.batches(0):
        numbers = batch.regions[:, 0, 0, 0].tolist()
        assert numbers == batch.image.tolist() == [int(text) for text in batch.words]
        assert batch.negatives.words == [f"not {n}" for n in numbers]
        if pairs:
            assert batch.negatives.regions[:, 0, 0, 0].tolist() == [100 + n for n in numbers]
            assert set(batch.negatives.image.tolist()).isdisjoint(range(7))
        else:
            assert batch.negatives.regions is batch.negatives.image is None
        images += numbers
    assert sorted(images) == list(range(7))


def test_trial_accuracy_equals_a_loop():
    """With random scores of images and texts."""
    data, rng = numbered_set(True), np.random.default_rng(0)
    scores = np.round(rng.random((14, 14)) * 4) / 4  # with ties

    def place(value):
        return value if value < 100 else value - 100 + 7

    def compare(regions, texts):
        rows = [place(int(n)) for n in regions[:, 0, 0, 0]]
        columns = [int(text) if "not" not in text else int(text.split()[1]) + 7 for text in texts]
        return scores[np.ix_(rows, columns)]

    model = SimpleNamespace(net=torch.nn.Linear(1, 1), as_regions=lambda pixels: pixels, compare=compare)
    expected = {
        "ipos2t": np.mean([scores[n, n] > scores[n, n + 7] for n in range(7)]),
        "ineg2t": np.mean([scores[n + 7, n + 7] > scores[n + 7, n] for n in range(7)]),
        "tpos2i": np.mean([scores[n, n] > scores[n + 7, n] for n in range(7)]),
        "tneg2i": np.mean([scores[n + 7, n + 7] > scores[n, n + 7] for n in range(7)]),
    }
    accuracies = measure_trials(model, data)
    assert accuracies.pop("sum") == pytest.approx(100 * sum(expected.values()))
    assert accuracies == {name: pytest.approx(100 * value) for name, value in expected.items()}
    texts_only = measure_trials(model, numbered_set(False))
    assert texts_only == {"ipos2t": pytest.approx(100 * expected["ipos2t"]), "sum": texts_only["ipos2t"]}


# Training on images of two coloured animals, whose negatives have the colours swapped

KINDS, COLOURS = ("ape", "bee", "cat", "dog", "eel", "fox"), ("red", "blue", "green", "pink", "black")
CODES = np.random.default_rng(1).standard_normal((len(KINDS) + len(COLOURS), 12)).astype(np.float32)


def coloured_set(images, seed, kind):
    """As a training set without hard negatives, with texts, or with pairs."""
    rng = np.random.default_rng(seed)
    objects = np.stack([rng.permutation(len(KINDS))[:2] for _ in range(images)])
    colours = np.stack([rng.permutation(len(COLOURS))[:2] for _ in range(images)])

    def make_features(colours):
        return CODES[objects] + CODES[len(KINDS) + colours] + 0.1 * rng.standard_normal((images, 2, 12)).astype(np.float32)

    def make_texts(colours):
        return [
            f"a {COLOURS[c[0]]} {KINDS[t[0]]} and a {COLOURS[c[1]]} {KINDS[t[1]]}" for t, c in zip(objects, colours, strict=True)
        ]

    links = np.stack([np.arange(images)] * 2, axis=1)
    data = TrainingSet(ArrayStore(make_features(colours)), tuple(make_texts(colours)), links)
    if kind == "none":
        return data
    negative_images = (ArrayStore(make_features(colours[:, ::-1])), np.arange(images)) if kind == "pairs" else ()
    return add_negatives(data, links, make_texts(colours[:, ::-1]), *negative_images)


def clip():
    vocabulary = Vocabulary.from_texts([*KINDS, *COLOURS, "a and"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = torch.nn.ModuleDict({"match": CLIP(CLIPConfig(12, len(vocabulary), 32, 32, 2, 2, 32, 2, 2))})

    def compare(regions, texts):
        match = net["match"].eval()
        with torch.inference_mode():
            return match.similarity(match.images(regions), match.texts(vocabulary.encode(texts))).numpy()

    return SimpleNamespace(net=net, match=net["match"], vocabulary=vocabulary, as_regions=lambda regions: regions, compare=compare)


def train_clip(folder, kind, epochs, model=None, every=CHECKPOINT_SECONDS):
    settings = TrainSettings(optimiser="adamw", learning_rate=2e-3, weight_decay=0.1, beta2=0.98, eps=1e-6, batch=40, epochs=epochs,
                             schedule="cosine", warm_up_steps=10)  # fmt: skip
    student = clip()
    if model is not None:
        student.net.load_state_dict(model.net.state_dict())
    data = coloured_set(400, 0, kind), coloured_set(100, 1, kind)
    state = fit(
        ZooTraining(student, partial(contrastive, options=InfoNCEOptions()), *data, settings),
        Checkpoints(folder, TrainingIdentity("recipe", "data")),
        every=every,
    )
    return student, state


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return train_clip(tmp_path_factory.mktemp("base"), "none", epochs=8)


def test_in_batch_negatives_teach_retrieval_but_not_attribute_binding(base):
    model, state = base
    assert state.best > 450  # of 600; chance adds up to 32 on 100 images
    chosen = measure_trials(model, coloured_set(300, 9, "pairs"))
    assert all(35 < chosen[name] < 65 for name in ("ipos2t", "ineg2t", "tpos2i", "tneg2i"))  # near chance


@pytest.mark.slow
def test_hard_negatives_teach_attribute_binding(base, tmp_path):
    """On new images; pairs teach more than texts, and in both directions."""
    validation = coloured_set(300, 9, "pairs")
    accuracies = {"base": measure_trials(base[0], validation)}
    for kind in ("texts", "pairs"):
        model, state = train_clip(tmp_path / kind, kind, 10, base[0])
        accuracies[kind] = measure_trials(model, validation)
        assert (
            list(state.rows[0])[5:]
            == {"texts": ["val ipos2t", "sum"], "pairs": ["val ipos2t", "val ineg2t", "val tpos2i", "val tneg2i", "sum"]}[kind]
        )
    assert accuracies["texts"]["ipos2t"] > accuracies["base"]["ipos2t"] + 10
    assert min(value for name, value in accuracies["pairs"].items() if name != "sum") > 75
    assert accuracies["pairs"]["sum"] > accuracies["texts"]["sum"]


def test_interrupted_training_with_negatives_ends_with_the_same_weights(base, tmp_path, monkeypatch):
    from crossmatch.models.files.model_folder import hash_weights

    whole = hash_weights(train_clip(tmp_path / "whole", "pairs", 2, base[0])[0].net)
    steps = stop_at_step(monkeypatch, 14)  # the fourth of the ten of the second epoch
    with pytest.raises(KeyboardInterrupt):
        train_clip(tmp_path / "half", "pairs", 2, base[0], every=0.0)
    assert hash_weights(train_clip(tmp_path / "half", "pairs", 2, base[0])[0].net) == whole
    assert len(steps) == 14 + 7  # resumes with the interrupted step


# Files


@pytest.fixture
def folder(tmp_path):
    """Twelve grey pictures with two captions each, and brighter ones as negatives."""
    (tmp_path / "pets/images").mkdir(parents=True)
    (tmp_path / "hard/images").mkdir(parents=True)
    lines = ["image,caption"]
    for n in range(12):
        Image.new("RGB", (20, 20), (10 * n,) * 3).save(tmp_path / f"pets/images/{n}.png")
        Image.new("RGB", (20, 20), (10 * n + 120,) * 3).save(tmp_path / f"hard/images/{n}.png")
        lines += [f"{n}.png,picture {n}", f"{n}.png,number {n}"]
    (tmp_path / "pets/captions.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def write_negatives(folder, name, header, rows):
    path = folder / "hard" / name
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows))
    else:
        comma = "\t" if name.endswith("tsv") else ","
        path.write_text("\n".join(comma.join(f'"{cell}"' for cell in row) for row in [header, *rows]) + "\n")
    return path


def open_with_negatives(folder, path, kind="texts", **more):
    options = DataOptions(validation=str(folder / "pets"), hard=NegativeSettings(kind), negatives=path, **more)
    return open_source(f"collection:{folder / 'pets'}", PIXELS, options)


LAYOUTS = {
    "ours.csv": ("image", "caption", "negative_caption"),
    "ours.jsonl": ("image", "caption", "negative_caption"),
    "trohn.csv": ("image_id", "caption", "negative_caption"),
    "negclip.tsv": ("filepath", "title", "neg_caption"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_file_with_negative_texts(folder, name):
    rows = [(f"{n}.png", f"number {n}", f"number {n + 50}") for n in range(12)]
    if name.startswith("negclip"):
        rows = [(f"images/{n}.png", text, f"['{false}', 'no {text}']") for n, (_, text, false) in enumerate(rows)]
    train, _ = open_with_negatives(folder, write_negatives(folder, name, LAYOUTS[name], rows)).load()
    actual = [
        (train.captions[c], train.captions[h]) for (_, c), (_, h) in zip(train.links.tolist(), train.hard.tolist(), strict=True)
    ]
    expected = [(f"number {n}", f"number {n + 50}") for n in range(12)]
    if name.startswith("negclip"):
        expected += [(f"number {n}", f"no number {n}") for n in range(12)]
    assert sorted(actual) == sorted(expected)
    for image, caption in train.links.tolist():
        assert int(train.store.take(np.array([image]))[0, 0, 0, 0]) == 10 * int(train.captions[caption].split()[1])


def test_file_with_negative_pairs(folder):
    header = ("image", "caption", "negative_caption", "negative_image")
    rows = [(f"{n}.png", f"told anew {n}", f"number {n + 50}", f"{n}") for n in range(12)]
    source = open_with_negatives(folder, write_negatives(folder, "a.csv", header, rows), "pairs")
    train, _ = source.load()
    for (image, caption), (negative_image, negative) in zip(train.links.tolist(), train.hard.tolist(), strict=True):
        greys = train.store.take(np.array([image, negative_image]))[:, 0, 0, 0].tolist()
        n = greys[0] // 10
        assert greys == [10 * n, 10 * n + 120]
        assert (train.captions[caption], train.captions[negative]) == (f"told anew {n}", f"number {n + 50}")
    assert open_with_negatives(folder, folder / "hard/a.csv", "pairs").digest == source.digest
    texts = open_with_negatives(folder, folder / "hard/a.csv").digest
    Image.new("RGB", (20, 20), "red").save(folder / "hard/images/0.png")
    assert len({source.digest, texts, open_with_negatives(folder, folder / "hard/a.csv", "pairs").digest}) == 3


def test_rows_follow_the_split_of_their_images(folder):
    rows = [(f"{n}.png", f"number {n}", "nothing") for n in range(12)]
    path = write_negatives(folder, "a.csv", LAYOUTS["ours.csv"], rows)
    options = DataOptions(hard=NegativeSettings("texts"), negatives=path)
    train, validation = open_source(f"collection:{folder / 'pets'}", PIXELS, options).load()
    assert (len(train.links), len(validation.links)) == (10, 2)
    write_negatives(
        folder, "a.csv", LAYOUTS["ours.csv"], [row for row in rows if row[1] in {train.captions[n] for n in train.links[:, 1]}]
    )
    with pytest.raises(CrossmatchError, match=r"has 0 rows for the 2 images to validate with.*--validation FOLDER"):
        open_source(f"collection:{folder / 'pets'}", PIXELS, options)


def test_ambiguous_image_name_is_refused(folder):
    Image.new("RGB", (20, 20)).save(folder / "pets/images/3.jpg")
    with (folder / "pets/captions.csv").open("a") as file:
        file.write("3.jpg,picture 3 in grey\n")
    rows = [(f"{n}.png", f"number {n}", "nothing") for n in range(12)]
    whole = open_with_negatives(
        folder, write_negatives(folder, "a.csv", LAYOUTS["ours.csv"], [*rows, ("3.jpg", "number 3", "nothing"), ("4", "x", "y")])
    )
    assert len(whole.load()[0].links) == 14
    path = write_negatives(folder, "b.csv", LAYOUTS["ours.csv"], [*rows, ("3", "number 3", "nothing")])
    with pytest.raises(CrossmatchError, match=r"b.csv line 14: image '3' is ambiguous"):
        open_with_negatives(folder, path)


GOOD = ("0.png", "a cat", "a dog", "0")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("99.png", *GOOD[1:]), "image '99.png' is not in the collection; the most similar id is '9.png'"),
        ((*GOOD[:2], "A  cat", "0"), "equals the caption up to case and punctuation"),
        ((*GOOD[:2], "A cat.", "0"), "equals the caption up to case and punctuation"),
        ((*GOOD[:2], "...", "0"), "has no words"),
        ((*GOOD[:2], "Number 0!", "0"), "a caption of '0.png'"),
        ((*GOOD[:2], "", "0"), "empty negative caption"),
        ((GOOD[0], "", *GOOD[2:]), "has caption = "),
        ((*GOOD[:3], ""), "has no negative_image, which the recipe needs.*clip-hard-texts"),
        ((*GOOD[:3], "44"), "there is no image '44' in"),
        ((*GOOD[:3], "../44"), "leads out of"),
    ],
)
def test_error_in_a_row_names_its_line(folder, row, message):
    path = write_negatives(folder, "a.csv", ("image", "caption", "negative_caption", "negative_image"), [GOOD, row])
    with pytest.raises(CrossmatchError, match=rf"a.csv line 3.*{message}"):
        open_with_negatives(folder, path, "pairs")


def test_negative_image_of_the_collection_is_not_stored_twice(folder):
    """Its captions are true of it in every row; and no image is its own negative."""
    header = ("image", "caption", "negative_caption", "negative_image")
    for n in range(12):
        (folder / f"hard/again{n}.png").write_bytes((folder / f"pets/images/{n}.png").read_bytes())
    rows = [(f"{n}.png", f"told anew {n}", f"nothing {n}", f"again{(n + 1) % 12}.png") for n in range(12)]
    own, _ = open_with_negatives(folder, write_negatives(folder, "a.csv", header, rows), "pairs").load()
    greys = own.store.take(np.arange(len(own.store)))[:, 0, 0, 0].numpy() // 10
    for (image, _), (negative_image, _) in zip(own.links.tolist(), own.hard.tolist(), strict=True):
        assert greys[negative_image] == (greys[image] + 1) % 12
        assert np.flatnonzero(greys == greys[negative_image])[0] == negative_image  # that of the collection, if it has the picture
    rows[3] = ("3.png", "told anew 3", "nothing 3", "again3.png")
    with pytest.raises(CrossmatchError, match=r"the negative image 'again3\.png', which is the image '3\.png' itself"):
        open_with_negatives(folder, write_negatives(folder, "a.csv", header, rows), "pairs").load()


def test_invalid_files_are_refused(folder):
    for path, message in (
        (folder / "x.csv", "does not exist"),
        (folder / "pets", "is a folder"),
        (folder / "pets/images/1.png", "has the ending '.png'"),
    ):
        with pytest.raises(UsageError, match=message):
            NegativeFile.read(path, pairs=False)
    with pytest.raises(CrossmatchError, match="'negative_caption' or 'neg_caption' is missing"):
        NegativeFile.read(write_negatives(folder, "a.csv", ("image", "caption"), [("0.png", "a cat")]), pairs=False)
    with pytest.raises(CrossmatchError, match="expected a list of texts"):
        NegativeFile.read(write_negatives(folder, "b.tsv", LAYOUTS["negclip.tsv"], [("0.png", "a cat", "['a dog'")]), pairs=False)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("diorama", {"negatives": "x.csv", "hard": NegativeSettings("texts")}, "--negatives applies to"),
        ("collection:pets", {"negatives": "x.csv"}, "trains without hard negatives"),
        ("collection:pets", {"hard": NegativeSettings("texts")}, "Name a file: --negatives FILE"),
        ("precomp:pets", {"hard": NegativeSettings("texts")}, "has no hard negatives"),
    ],
)
def test_negatives_that_do_not_fit_the_data_are_refused(data, options, message):
    with pytest.raises(UsageError, match=message):
        open_source(data, PIXELS, DataOptions(**options))


# From a recipe to a model


def test_clip_recipes_on_diorama_differ_in_negatives_and_batch_size_only():
    """Batches: 200 pairs, 100 images with 200 captions, or 100 pairs with 100 negative pairs."""
    plain, texts, pairs = (load_recipe(name) for name in ("clip-in-batch", "clip-hard-texts", "clip-hard-pairs"))
    assert [recipe.negatives for recipe in (plain, texts, pairs)] == [
        NegativeSettings(kind, style="generator") for kind in ("unused", "texts", "pairs")
    ]
    assert texts.train == pairs.train == replace(plain.train, batch=100)
    assert (plain.train.batch, plain.train.epochs) == (200, 6)
    assert load_recipe("clip-in-batch", "collection").negatives.kind == "none"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("clip-in-batch", "unused"), ("clip-hard-texts", "texts"), ("clip-hard-pairs", "pairs")]
)
def test_clip_recipes_beat_chance_on_diorama(name, kind, tmp_path):
    """On a tiny world, with trials as validation, and with the base model in the folder `begin`."""
    from crossmatch.evaluation.evaluate import evaluate_all
    from crossmatch.train.run_recipe import train_recipe

    overrides = ["features.lessons=200", "model.dimensions=32", "model.image_width=32", "model.text_width=32", "train.epochs=2",
             "begin.train.epochs=6", "begin.train.batch=50", "begin.train.warm_up_steps=20", "train.warm_up_steps=2"]  # fmt: skip
    model = train_recipe(name, tmp_path, options=DataOptions(size="tiny"), overrides=overrides)
    (result,) = evaluate_all(model, ["diorama/retrieval"], size="tiny", samples=200)
    for direction in ("i2t", "t2i"):
        row = result[f"{direction}/truth/hit@10"]
        assert row.low > row.chance, direction
    description = json.loads((tmp_path / "model.json").read_text())["recipe"]
    assert (description["negatives"]["kind"], description["negatives"]["style"]) == (kind, "generator")
    assert description["begin"]["name"] == "clip"
    assert "val ipos2t,val ineg2t,val tpos2i,val tneg2i,sum" in (tmp_path / "log.csv").read_text().splitlines()[0]
    assert "hit@10" in (tmp_path / "begin/log.csv").read_text().splitlines()[0]
