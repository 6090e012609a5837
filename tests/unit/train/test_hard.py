"""Hard negatives: what they are in the embedded world and in files, what a batch carries of them, and what is learnt from them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.diorama.edits import IN_PICTURES, IN_WORDS, holds
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.world import Diorama
from crossmatch.models.zoo.clip import CLIP, CLIPConfig
from crossmatch.models.zoo.inputs import Vocabulary
from crossmatch.train import hard
from crossmatch.train.checkpoints import Checkpoints, Identity
from crossmatch.train.data import ArrayStore, PixelStore, TrainingSet
from crossmatch.train.hard import diorama_edits, edited, hardened, in_words, is_wrong, trial_accuracy, unedited
from crossmatch.train.hard_files import NegativeFile
from crossmatch.train.loop import EVERY, Training, fit
from crossmatch.train.objectives.info_nce import contrastive
from crossmatch.train.recipe import NegativeSettings, TrainSettings, load_recipe
from crossmatch.train.sources import Asked, source

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
    return [one for n in range(SCENES) for one in edited("train", n, each=7)]


def test_a_negative_is_false_where_the_caption_is_true_and_the_reverse(edits):
    for one in edits:
        before, positive, negative = sample_scene("diorama", 0, "train", one.number), one.edit.positive, one.edit.negative
        truth = [[holds(text.caption.meaning, scene) for text in (positive, negative)] for scene in (before, one.scene)]
        assert truth == [[True, False], [False, True]]


def test_the_caption_that_is_edited_is_one_of_the_scenes_own(edits):
    captions = Diorama.make("train", SCENES).captions
    assert all(captions[5 * one.number + one.place].text == one.edit.positive.caption.text for one in edits)


def test_every_scene_has_an_edit_and_all_categories_occur(edits):
    assert {one.number for one in edits} == set(range(SCENES))
    assert {one.edit.category for one in edits} == set(IN_PICTURES)
    each = Counter(one.number for one in edits)
    assert len({(one.number, one.edit.category) for one in edits}) == sum(each.values())  # a category once for a scene


def test_fewer_edits_are_the_first_of_more_and_another_seed_gives_others(edits):
    first = [next(edited("train", n)) for n in range(SCENES)]
    of_more = {one.number: one for one in reversed(edits)}
    assert first == [of_more[n] for n in range(SCENES)]
    assert first != [next(edited("train", n, seed=1)) for n in range(SCENES)]


def test_a_wrong_image_does_not_show_the_edit_and_has_all_that_the_scene_had(edits):
    for one in edits:
        before, shown = sample_scene("diorama", 0, "train", one.number), unedited(one, "train")
        assert not holds(one.edit.negative.caption.meaning, shown)
        assert shown != before

        def looks(scene):
            return Counter((t.kind, t.colour, t.texture, t.size) for t in scene.things)

        assert looks(shown) == looks(before)


def test_edits_in_words_are_of_the_same_captions_and_add_to_any(edits):
    """As SugarCrepe's: all categories of `IN_WORDS`, in the order in which they were drawn."""
    found = [in_words(one, "train") for one in edits]
    adds = {"add/obj", "add/att"}
    for one, edit in zip(edits, found, strict=True):
        scene = sample_scene("diorama", 0, "train", one.number)
        assert edit.positive == one.edit.positive
        assert holds(edit.positive.caption.meaning, scene)
        assert not holds(edit.negative.caption.meaning, scene)
        assert edit == one.edit or edit.category in adds & set(one.drawn)
        assert one.drawn[-1] == one.edit.category
    assert sum(edit.category in adds for edit in found) > 2 * sum(one.edit.category in adds for one in edits)
    assert {edit.category for edit in found} == set(IN_WORDS)


def test_more_noise_spoils_what_less_noise_spoils():
    shares = {}
    for noise in (0.0, 0.2, 0.6, 1.0):
        said = NegativeSettings("pairs", noise=noise)
        shares[noise] = {n for n in range(2000) if is_wrong(said, "train", n, "replace/obj")}
    assert shares[0.0] == set() < shares[0.2] < shares[0.6] < shares[1.0] == set(range(2000))
    assert len(shares[0.2]) / 2000 == pytest.approx(0.2, abs=0.03)
    assert len(shares[0.6]) / 2000 == pytest.approx(0.6, abs=0.04)


def test_edits_are_made_once(monkeypatch):
    said = NegativeSettings("texts", each=2)
    first = diorama_edits("train", 5, said)
    assert [row[:2] for row in first] == [(one.number, one.place) for n in range(5) for one in edited("train", n, 2)]
    monkeypatch.setattr(hard, "in_parts", None)
    assert diorama_edits("train", 5, said) == first
    with pytest.raises(TypeError):
        diorama_edits("train", 6, said)


# The embedded world as data


def world(kind="pairs", images=12, features=PIXELS, **more):
    return source("diorama", features, Asked(images=images, size="tiny", judged=6, hard=NegativeSettings(kind, **more)))


def test_the_embedded_world_with_negative_texts():
    train, validation = world("texts").load()
    assert len(train.store) == 12
    assert (validation.hard[:, 0] >= 6).all()  # judged by two images and two captions all the same
    captions = [c.text for c in Diorama.make("train", 12).captions]
    assert list(train.captions[:60]) == captions
    made = [one for n in range(12) for one in edited("train", n)]
    rows = sorted((one.number, one.place, in_words(one, "train").negative.text) for one in made)
    found = [(i, c - 5 * i, train.captions[h]) for (i, c), (_, h) in zip(train.links.tolist(), train.hard.tolist(), strict=True)]
    assert sorted(found) == rows
    assert (train.hard[:, 0] == -1).all()


def drawn(scene, style="camera"):
    from PIL.Image import Resampling

    from crossmatch.diorama.draw import draw

    return np.asarray(draw(scene, style, 32).resize((16, 16), Resampling.BOX))


@pytest.mark.parametrize(("noise", "style"), [(0.0, "camera"), (1.0, "camera"), (0.5, "generator")])
def test_the_embedded_world_with_negative_pairs(noise, style):
    said = NegativeSettings("pairs", noise=noise, style=style)
    train, _ = world(noise=noise, style=style).load()
    wrong = 0
    for (image, caption), (other, _) in zip(train.links.tolist(), train.hard.tolist(), strict=True):
        one = next(edited("train", image))
        assert caption == 5 * image + one.place
        failed = is_wrong(said, "train", image, one.edit.category)
        wrong += failed
        scene = unedited(one, "train") if failed else one.scene
        assert np.array_equal(train.store.take(np.array([other]))[0].numpy(), drawn(scene, style))
        assert np.array_equal(train.store.take(np.array([image]))[0].numpy(), drawn(sample_scene("diorama", 0, "train", image)))
    assert (0 < wrong < 12) if noise == 0.5 else wrong == 12 * noise


def test_regions_of_edited_scenes_are_those_that_a_model_would_see():
    from crossmatch.diorama.draw import draw
    from crossmatch.models.zoo.features import Extractor
    from crossmatch.train.features import ready

    train, _ = world(images=4, features={"lessons": 40}).load()
    hard_image = train.hard[2, 0]
    seen = train.store.take(np.array([hard_image, train.links[2, 0]]))
    one = next(edited("train", int(train.links[2, 0])))
    wanted = ready(Extractor(lessons=40)).regions([draw(one.scene), draw(sample_scene("diorama", 0, "train", one.number))])
    torch.testing.assert_close(seen.features, wanted.features, atol=1e-2, rtol=1e-2)  # kept in half precision
    torch.testing.assert_close(seen.boxes, wanted.boxes, atol=1e-6, rtol=0)
    assert torch.equal(seen.real, wanted.real)


def test_all_kinds_have_the_same_links_and_are_judged_by_the_same_trials_without_noise():
    sets = {kind: world(kind, style="generator").load() for kind in ("unused", "texts", "pairs")}
    sets["noisy"] = world("pairs", style="generator", noise=1.0).load()
    links, trials = sets["pairs"][0].links, sets["pairs"][1]
    assert len(links) == 12
    for train, validation in sets.values():
        assert train.links.tolist() == links.tolist()
        assert validation.digest == trials.digest
    assert sets["unused"][0].hard is None
    assert sets["unused"][0].captions == source("diorama", PIXELS, Asked(images=12, size="tiny", judged=6)).load()[0].captions
    for (image, caption), (other, negative) in zip(trials.links.tolist(), trials.hard.tolist(), strict=True):
        one = next(edited("val", image))
        assert (caption, trials.captions[negative]) == (5 * image + one.place, one.edit.negative.text)
        assert np.array_equal(trials.store.take(np.array([other]))[0].numpy(), drawn(one.scene, "generator"))
    assert sets["noisy"][0].digest != sets["pairs"][0].digest


def test_what_is_left_unused_is_made_for_the_embedded_world_alone(tmp_path):
    for data in (f"collection:{tmp_path}", f"precomp:{tmp_path}"):
        with pytest.raises(WrongWords, match=r"negatives\.kind is unused, which is for diorama.*negatives\.kind=none"):
            source(data, PIXELS, Asked(hard=NegativeSettings("unused")))


def test_the_hash_of_the_data_follows_the_negatives():
    plain = source("diorama", PIXELS, Asked(images=12, size="tiny", judged=6)).digest
    told = [world(kind).digest for kind in ("texts", "pairs", "unused")]
    told += [world(noise=0.3).digest, world(style="generator").digest, world(seed=1).digest, world(each=2).digest]
    assert len({plain, *told}) == 8
    assert world().digest == world().digest


# What a batch carries, and how a model is judged


def sets(pairs, rows=7):
    """Image n is all n, that of its negative all 100 + n; captions say the same."""
    pictures = np.arange(rows, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    links = np.stack([np.arange(rows), np.arange(rows)], axis=1)
    data = TrainingSet(PixelStore(pictures), tuple(f"{n}" for n in range(rows)), links)
    more = (PixelStore(pictures + np.uint8(100)), np.arange(rows)) if pairs else ()
    return hardened(data, links, [f"not {n}" for n in range(rows)], *more)


class Reader(list):
    """Texts by number, as themselves."""

    def __getitem__(self, which):
        return [list.__getitem__(self, n) for n in which.tolist()]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_batch_has_the_negatives_of_its_rows(pairs):
    data = sets(pairs)
    model = SimpleNamespace(look=lambda pixels: pixels)
    training = Training(model, None, {}, data, data, TrainSettings(batch=3))
    seen = []
    for batch in training.batches(0, Reader(data.captions)):
        shown = batch.regions[:, 0, 0, 0].tolist()
        assert shown == batch.image.tolist() == [int(text) for text in batch.words]
        assert batch.negatives.words == [f"not {n}" for n in shown]
        if pairs:
            assert batch.negatives.regions[:, 0, 0, 0].tolist() == [100 + n for n in shown]
            assert set(batch.negatives.image.tolist()).isdisjoint(range(7))
        else:
            assert batch.negatives.regions is batch.negatives.image is None
        seen += shown
    assert sorted(seen) == list(range(7))


def test_accuracy_is_the_share_of_right_choices():
    """Scores are made up: by image and text."""
    data, rng = sets(True), np.random.default_rng(0)
    scores = np.round(rng.random((14, 14)) * 4) / 4  # with ties

    def place(value):
        return value if value < 100 else value - 100 + 7

    def compare(regions, texts):
        rows = [place(int(n)) for n in regions[:, 0, 0, 0]]
        columns = [int(text) if "not" not in text else int(text.split()[1]) + 7 for text in texts]
        return scores[np.ix_(rows, columns)]

    model = SimpleNamespace(net=torch.nn.Linear(1, 1), look=lambda pixels: pixels, compare=compare)
    wanted = {
        "ipos2t": np.mean([scores[n, n] > scores[n, n + 7] for n in range(7)]),
        "ineg2t": np.mean([scores[n + 7, n + 7] > scores[n + 7, n] for n in range(7)]),
        "tpos2i": np.mean([scores[n, n] > scores[n + 7, n] for n in range(7)]),
        "tneg2i": np.mean([scores[n + 7, n + 7] > scores[n, n + 7] for n in range(7)]),
    }
    found = trial_accuracy(model, data)
    assert found.pop("sum") == pytest.approx(100 * sum(wanted.values()))
    assert found == {name: pytest.approx(100 * value) for name, value in wanted.items()}
    alone = trial_accuracy(model, sets(False))
    assert alone == {"ipos2t": pytest.approx(100 * wanted["ipos2t"]), "sum": alone["ipos2t"]}


# What is learnt: pictures of two coloured things, which differ from their negatives in what has which colour

KINDS, COLOURS = ("ape", "bee", "cat", "dog", "eel", "fox"), ("red", "blue", "green", "pink", "black")
CODES = np.random.default_rng(1).standard_normal((len(KINDS) + len(COLOURS), 12)).astype(np.float32)


def coloured(images, seed, kind):
    """As a training set without hard negatives, with texts, or with pairs."""
    rng = np.random.default_rng(seed)
    things = np.stack([rng.permutation(len(KINDS))[:2] for _ in range(images)])
    colours = np.stack([rng.permutation(len(COLOURS))[:2] for _ in range(images)])

    def shown(colours):
        return CODES[things] + CODES[len(KINDS) + colours] + 0.1 * rng.standard_normal((images, 2, 12)).astype(np.float32)

    def told(colours):
        return [
            f"a {COLOURS[c[0]]} {KINDS[t[0]]} and a {COLOURS[c[1]]} {KINDS[t[1]]}" for t, c in zip(things, colours, strict=True)
        ]

    links = np.stack([np.arange(images)] * 2, axis=1)
    data = TrainingSet(ArrayStore(shown(colours)), tuple(told(colours)), links)
    if kind == "none":
        return data
    more = (ArrayStore(shown(colours[:, ::-1])), np.arange(images)) if kind == "pairs" else ()
    return hardened(data, links, told(colours[:, ::-1]), *more)


def clip():
    vocabulary = Vocabulary.of([*KINDS, *COLOURS, "a and"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = torch.nn.ModuleDict({"match": CLIP(CLIPConfig(12, len(vocabulary), 32, 32, 2, 2, 32, 2, 2))})

    def compare(regions, texts):
        match = net["match"].eval()
        with torch.inference_mode():
            return match.similarity(match.images(regions), match.texts(vocabulary.numbered(texts))).numpy()

    return SimpleNamespace(net=net, match=net["match"], vocabulary=vocabulary, look=lambda regions: regions, compare=compare)


def trained(folder, kind, epochs, model=None, every=EVERY):
    settings = TrainSettings(optimiser="adamw", learning_rate=2e-3, weight_decay=0.1, beta2=0.98, eps=1e-6, batch=40, epochs=epochs,
                             schedule="cosine", warm_up_steps=10)  # fmt: skip
    mine = clip()
    if model is not None:
        mine.net.load_state_dict(model.net.state_dict())
    data = coloured(400, 0, kind), coloured(100, 1, kind)
    state = fit(Training(mine, contrastive, {}, *data, settings), Checkpoints(folder, Identity("recipe", "data")), every=every)
    return mine, state


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("base"), "none", epochs=8)


def test_in_batch_negatives_teach_to_find_captions_and_not_what_has_which_colour(base):
    model, state = base
    assert state.best > 450  # of 600; chance adds up to 32 on 100 images
    chosen = trial_accuracy(model, coloured(300, 9, "pairs"))
    assert all(35 < chosen[name] < 65 for name in ("ipos2t", "ineg2t", "tpos2i", "tneg2i"))  # a coin would do as well


def test_hard_negatives_teach_what_has_which_colour(base, tmp_path):
    """On pictures that were not trained on; pairs teach more than texts, and in both directions."""
    held = coloured(300, 9, "pairs")
    found = {"base": trial_accuracy(base[0], held)}
    for kind in ("texts", "pairs"):
        model, state = trained(tmp_path / kind, kind, 10, base[0])
        found[kind] = trial_accuracy(model, held)
        assert (
            list(state.rows[0])[5:]
            == {"texts": ["val ipos2t", "sum"], "pairs": ["val ipos2t", "val ineg2t", "val tpos2i", "val tneg2i", "sum"]}[kind]
        )
    assert found["texts"]["ipos2t"] > found["base"]["ipos2t"] + 10
    assert min(value for name, value in found["pairs"].items() if name != "sum") > 75
    assert found["pairs"]["sum"] > found["texts"]["sum"]


def test_training_with_negatives_goes_on_where_it_was_interrupted(base, tmp_path, monkeypatch):
    from crossmatch.models.folder import weights_of
    from crossmatch.train import loop

    whole = weights_of(trained(tmp_path / "whole", "pairs", 2, base[0])[0].net)
    steps, stepped = [], loop._stepped

    def stop(*given):
        steps.append(0)
        if len(steps) == 14:  # the fourth of the ten of the second epoch
            raise KeyboardInterrupt
        return stepped(*given)

    monkeypatch.setattr(loop, "_stepped", stop)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "half", "pairs", 2, base[0], every=0.0)
    assert weights_of(trained(tmp_path / "half", "pairs", 2, base[0])[0].net) == whole
    assert len(steps) == 14 + 7  # it goes on with the step before which it ended


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


def written(folder, name, header, rows):
    path = folder / "hard" / name
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows))
    else:
        comma = "\t" if name.endswith("tsv") else ","
        path.write_text("\n".join(comma.join(f'"{cell}"' for cell in row) for row in [header, *rows]) + "\n")
    return path


def of_file(folder, path, kind="texts", **more):
    asked = Asked(validation=str(folder / "pets"), hard=NegativeSettings(kind), negatives=path, **more)
    return source(f"collection:{folder / 'pets'}", PIXELS, asked)


LAYOUTS = {
    "ours.csv": ("image", "caption", "negative_caption"),
    "ours.jsonl": ("image", "caption", "negative_caption"),
    "trohn.csv": ("image_id", "caption", "negative_caption"),
    "negclip.tsv": ("filepath", "title", "neg_caption"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_negative_texts_of_a_file(folder, name):
    rows = [(f"{n}.png", f"number {n}", f"number {n + 50}") for n in range(12)]
    if name.startswith("negclip"):
        rows = [(f"images/{n}.png", text, f"['{false}', 'no {text}']") for n, (_, text, false) in enumerate(rows)]
    train, _ = of_file(folder, written(folder, name, LAYOUTS[name], rows)).load()
    found = [
        (train.captions[c], train.captions[h]) for (_, c), (_, h) in zip(train.links.tolist(), train.hard.tolist(), strict=True)
    ]
    wanted = [(f"number {n}", f"number {n + 50}") for n in range(12)]
    if name.startswith("negclip"):
        wanted += [(f"number {n}", f"no number {n}") for n in range(12)]
    assert sorted(found) == sorted(wanted)
    for image, caption in train.links.tolist():
        assert int(train.store.take(np.array([image]))[0, 0, 0, 0]) == 10 * int(train.captions[caption].split()[1])


def test_negative_pairs_of_a_file(folder):
    header = ("image", "caption", "negative_caption", "negative_image")
    rows = [(f"{n}.png", f"told anew {n}", f"number {n + 50}", f"{n}") for n in range(12)]
    held = of_file(folder, written(folder, "a.csv", header, rows), "pairs")
    train, _ = held.load()
    for (image, caption), (other, negative) in zip(train.links.tolist(), train.hard.tolist(), strict=True):
        greys = train.store.take(np.array([image, other]))[:, 0, 0, 0].tolist()
        n = greys[0] // 10
        assert greys == [10 * n, 10 * n + 120]
        assert (train.captions[caption], train.captions[negative]) == (f"told anew {n}", f"number {n + 50}")
    assert of_file(folder, folder / "hard/a.csv", "pairs").digest == held.digest
    texts = of_file(folder, folder / "hard/a.csv").digest
    Image.new("RGB", (20, 20), "red").save(folder / "hard/images/0.png")
    assert len({held.digest, texts, of_file(folder, folder / "hard/a.csv", "pairs").digest}) == 3


def test_rows_validate_where_their_images_do(folder):
    rows = [(f"{n}.png", f"number {n}", "nothing") for n in range(12)]
    path = written(folder, "a.csv", LAYOUTS["ours.csv"], rows)
    asked = Asked(hard=NegativeSettings("texts"), negatives=path)
    train, validation = source(f"collection:{folder / 'pets'}", PIXELS, asked).load()
    assert (len(train.links), len(validation.links)) == (10, 2)
    written(folder, "a.csv", LAYOUTS["ours.csv"], [row for row in rows if row[1] in {train.captions[n] for n in train.links[:, 1]}])
    with pytest.raises(CrossmatchError, match=r"has 0 rows of the 2 images to validate with.*--validation FOLDER"):
        source(f"collection:{folder / 'pets'}", PIXELS, asked)


def test_a_name_that_two_files_could_have_is_refused(folder):
    Image.new("RGB", (20, 20)).save(folder / "pets/images/3.jpg")
    with (folder / "pets/captions.csv").open("a") as file:
        file.write("3.jpg,picture 3 in grey\n")
    rows = [(f"{n}.png", f"number {n}", "nothing") for n in range(12)]
    whole = of_file(
        folder, written(folder, "a.csv", LAYOUTS["ours.csv"], [*rows, ("3.jpg", "number 3", "nothing"), ("4", "x", "y")])
    )
    assert len(whole.load()[0].links) == 14
    path = written(folder, "b.csv", LAYOUTS["ours.csv"], [*rows, ("3", "number 3", "nothing")])
    with pytest.raises(CrossmatchError, match=r"b.csv line 14: image '3' may be '3.jpg' or '3.png'. Write the whole name"):
        of_file(folder, path)


GOOD = ("0.png", "a cat", "a dog", "0")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (("99.png", *GOOD[1:]), "image '99.png' is not in the collection; the nearest is '9.png'"),
        ((*GOOD[:2], "A  cat", "0"), "reads as its caption but for case and signs"),
        ((*GOOD[:2], "A cat.", "0"), "reads as its caption but for case and signs"),
        ((*GOOD[:2], "...", "0"), "holds no word"),
        ((*GOOD[:2], "Number 0!", "0"), "one of the captions of '0.png'"),
        ((*GOOD[:2], "", "0"), "empty negative caption"),
        ((GOOD[0], "", *GOOD[2:]), "has '' for caption"),
        ((*GOOD[:3], ""), "has no negative_image, which the recipe asks for.*clip-hard-texts"),
        ((*GOOD[:3], "44"), "there is no image '44' in"),
        ((*GOOD[:3], "../44"), "leads out of"),
    ],
)
def test_a_mistake_in_a_row_is_named_with_its_line(folder, row, says):
    path = written(folder, "a.csv", ("image", "caption", "negative_caption", "negative_image"), [GOOD, row])
    with pytest.raises(CrossmatchError, match=rf"a.csv line 3.*{says}"):
        of_file(folder, path, "pairs")


def test_a_negative_image_that_is_in_the_collection_is_the_same_image(folder):
    """Its own captions are true of it, whichever row it stands in; and no image is its own negative."""
    header = ("image", "caption", "negative_caption", "negative_image")
    for n in range(12):
        (folder / f"hard/again{n}.png").write_bytes((folder / f"pets/images/{n}.png").read_bytes())
    rows = [(f"{n}.png", f"told anew {n}", f"nothing {n}", f"again{(n + 1) % 12}.png") for n in range(12)]
    own, _ = of_file(folder, written(folder, "a.csv", header, rows), "pairs").load()
    greys = own.store.take(np.arange(len(own.store)))[:, 0, 0, 0].numpy() // 10
    for (image, _), (other, _) in zip(own.links.tolist(), own.hard.tolist(), strict=True):
        assert greys[other] == (greys[image] + 1) % 12
        assert np.flatnonzero(greys == greys[other])[0] == other  # the first of that picture: the collection's, where it has it
    rows[3] = ("3.png", "told anew 3", "nothing 3", "again3.png")
    with pytest.raises(CrossmatchError, match=r"'again3\.png' as negative image, which is '3\.png' itself"):
        of_file(folder, written(folder, "a.csv", header, rows), "pairs").load()


def test_a_file_that_cannot_be_is_named(folder):
    for path, says in (
        (folder / "x.csv", "is not there"),
        (folder / "pets", "is a folder"),
        (folder / "pets/images/1.png", "ends in '.png'"),
    ):
        with pytest.raises(WrongWords, match=says):
            NegativeFile.read(path, pairs=False)
    with pytest.raises(CrossmatchError, match="one called 'negative_caption' or 'neg_caption' is missing"):
        NegativeFile.read(written(folder, "a.csv", ("image", "caption"), [("0.png", "a cat")]), pairs=False)
    with pytest.raises(CrossmatchError, match="a list of texts was expected"):
        NegativeFile.read(written(folder, "b.tsv", LAYOUTS["negclip.tsv"], [("0.png", "a cat", "['a dog'")]), pairs=False)


@pytest.mark.parametrize(
    ("data", "asked", "says"),
    [
        ("diorama", {"negatives": "x.csv", "hard": NegativeSettings("texts")}, "--negatives goes with"),
        ("collection:pets", {"negatives": "x.csv"}, "trained without hard negatives"),
        ("collection:pets", {"hard": NegativeSettings("texts")}, "Name a file: --negatives FILE"),
        ("precomp:pets", {"hard": NegativeSettings("texts")}, "has no hard negatives"),
    ],
)
def test_negatives_that_do_not_go_with_the_data_are_refused(data, asked, says):
    with pytest.raises(WrongWords, match=says):
        source(data, PIXELS, Asked(**asked))


# From a recipe to a model


def test_on_the_embedded_world_the_three_recipes_differ_in_kind_and_in_pairs_of_a_batch_alone():
    """As many items in a batch: 200 pairs, 100 images with 200 captions, or 100 pairs with 100 negative ones."""
    plain, texts, pairs = (load_recipe(name) for name in ("clip-in-batch", "clip-hard-texts", "clip-hard-pairs"))
    assert [each.negatives for each in (plain, texts, pairs)] == [
        NegativeSettings(kind, style="generator") for kind in ("unused", "texts", "pairs")
    ]
    assert texts.train == pairs.train == replace(plain.train, batch=100)
    assert (plain.train.batch, plain.train.epochs) == (200, 6)
    assert load_recipe("clip-in-batch", "collection").negatives.kind == "none"


@pytest.mark.parametrize(
    ("name", "kind"), [("clip-in-batch", "unused"), ("clip-hard-texts", "texts"), ("clip-hard-pairs", "pairs")]
)
def test_a_clip_that_is_trained_further_finds_what_it_was_not_trained_on(name, kind, tmp_path):
    """On a tiny world: better than chance at retrieval, chosen by its choices, with its beginning beside it."""
    from crossmatch.run import evaluate_all
    from crossmatch.train.zoo import train_zoo

    words = ["features.lessons=200", "model.dimensions=32", "model.image_width=32", "model.text_width=32", "train.epochs=2",
             "begin.train.epochs=6", "begin.train.batch=50", "begin.train.warm_up_steps=20", "train.warm_up_steps=2"]  # fmt: skip
    model = train_zoo(name, tmp_path, asked=Asked(size="tiny"), overrides=words)
    (found,) = evaluate_all(model, ["diorama/retrieval"], size="tiny", samples=200)
    for way in ("i2t", "t2i"):
        row = found[f"{way}/truth/hit@10"]
        assert row.low > row.chance, way
    told = json.loads((tmp_path / "model.json").read_text())["recipe"]
    assert (told["negatives"]["kind"], told["negatives"]["style"]) == (kind, "generator")
    assert told["begin"]["name"] == "clip"
    assert "val ipos2t,val ineg2t,val tpos2i,val tneg2i,sum" in (tmp_path / "log.csv").read_text().splitlines()[0]
    assert "hit@10" in (tmp_path / "begin/log.csv").read_text().splitlines()[0]
