"""Models of open_clip and transformers in the training loop: the loss falls, by the library's own slope, and it is loaded again."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from crossmatch.models import make_model  # noqa: E402
from crossmatch.models.folder import weights_of  # noqa: E402
from crossmatch.train.checkpoints import Checkpoints, Identity, alone  # noqa: E402
from crossmatch.train.data import TrainingSet  # noqa: E402
from crossmatch.train.fine_tune import fine_tune, judged_in_parts  # noqa: E402
from crossmatch.train.foreign import begun_with  # noqa: E402
from crossmatch.train.loop import Training, fit  # noqa: E402
from crossmatch.train.objectives import objective  # noqa: E402
from crossmatch.train.recipe import TrainSettings, load_recipe  # noqa: E402
from crossmatch.train.sources import Asked  # noqa: E402


def _beside(name: str) -> Any:
    """The fixtures of the adapters' tests: tiny models with random weights, saved as a user has them."""
    path = Path(__file__).parents[1] / "models" / name
    spec = importlib.util.spec_from_file_location(f"fixtures_{name.replace('/', '_').removesuffix('.py')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LIBRARY, TINY = _beside("conftest.py"), _beside("hf/conftest.py")
torchvision_operators, open_clip = LIBRARY.torchvision_operators, LIBRARY.open_clip
transformers, make_tokenizer, saved, _one_thread = TINY.transformers, TINY.make_tokenizer, TINY.saved, TINY._one_thread

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "black": (10, 10, 10)}
WORDS = ("cat", "dog", "cup")
CONFIG: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
SETTINGS = TrainSettings(
    optimiser="adamw", learning_rate=3e-3, beta2=0.98, eps=1e-6, weight_decay=0.1, batch=6, epochs=4, schedule="cosine",
    warm_up_steps=2, validation=4,
)  # fmt: skip
TEXTS = ["a red cat", "the dog on a blue cup", ""]


@pytest.fixture(scope="module")
def hf_clip(transformers, saved, make_tokenizer):
    tokenizer = make_tokenizer(
        ("[PAD]", "[UNK]", "<start>"), "<start> $A <end>", ("<end>",),
        pad_token="[PAD]", bos_token="<start>", eos_token="<end>", model_max_length=77,
    )  # fmt: skip
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    text = TINY.tower(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, max_position_embeddings=77)
    config = transformers.CLIPConfig(text_config=text, vision_config=TINY.tower(image_size=16, patch_size=8), projection_dim=24)
    return f"hf:{saved('clip', config, 'CLIPModel', tokenizer, processor)}"


@pytest.fixture(scope="module")
def siglip(transformers, saved, make_tokenizer):
    tokenizer = make_tokenizer(("</s>", "[UNK]"), "$A </s>", pad_token="</s>", eos_token="</s>", model_max_length=64)
    text = TINY.tower(vocab_size=len(tokenizer), max_position_embeddings=64, projection_size=32)
    config = transformers.SiglipConfig(text_config=text, vision_config=TINY.tower(image_size=16, patch_size=8))
    processor = transformers.SiglipImageProcessorPil(size={"height": 16, "width": 16})
    return f"hf:{saved('siglip', config, 'SiglipModel', tokenizer, processor)}"


@pytest.fixture(scope="module")
def architectures(open_clip, tmp_path_factory):
    from open_clip import factory

    before = list(factory._MODEL_CONFIG_PATHS), dict(factory._MODEL_CONFIGS)
    folder = tmp_path_factory.mktemp("configs")
    for name, config in {"tiny": CONFIG, "tiny-quickgelu": CONFIG | {"quick_gelu": True}}.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    yield open_clip
    factory._MODEL_CONFIG_PATHS[:], factory._MODEL_CONFIGS = before


@pytest.fixture(scope="module")
def quick(architectures, tmp_path_factory):
    """A checkpoint of open_clip, to be loaded with the activation that is not its architecture's."""
    from crossmatch.models.stored import offline

    torch.manual_seed(0)
    with offline():
        net = architectures.create_model("tiny-quickgelu")
    path = tmp_path_factory.mktemp("open_clip") / "base.pt"
    torch.save({"state_dict": net.state_dict()}, path)
    return f"open_clip:tiny,{path},quickgelu"


@pytest.fixture(scope="module")
def described(architectures, tmp_path_factory):
    """A folder as open_clip's push_to_hf_hub writes it."""
    from crossmatch.models.stored import offline

    folder = tmp_path_factory.mktemp("described")
    torch.manual_seed(1)
    with offline():
        net = architectures.create_model("tiny")
    torch.save(net.state_dict(), folder / "open_clip_pytorch_model.bin")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG, "preprocess_cfg": {}}))
    return f"open_clip:local-dir:{folder}"


@pytest.fixture(params=["hf_clip", "siglip", "quick", "described"])
def begin(request):
    return request.getfixturevalue(request.param)


def pictures() -> list[Image.Image]:
    return [Image.new("RGB", (20 + 3 * n, 24), colour) for n, colour in enumerate(COLOURS.values())]


def world(begin: str, hard: bool = False) -> tuple[Any, TrainingSet]:
    """Plain colours, and texts that name them."""
    model = begun_with(begin)
    said = {name: [f"a {name} {word}" for word in WORDS] for name in COLOURS}
    held = Collection.of(said, dict(zip(COLOURS, pictures(), strict=True)).get)  # type: ignore[arg-type]
    negatives = None
    if hard:
        other = np.roll(np.arange(len(COLOURS)), 1)
        negatives = np.stack([other[held.links[:, 0]], (held.links[:, 1] + 3) % 12], axis=1)
    return model, TrainingSet(model.preparation(held), held.captions, held.links, negatives)


@pytest.mark.parametrize("hard", [False, True], ids=["in-batch", "hard-pairs"])
def test_the_loss_falls_and_the_weights_change(begin, hard, tmp_path):
    model, data = world(begin, hard)
    before = model.weights
    training = Training(model, objective("info-nce"), {}, data, data, SETTINGS, judged_in_parts)
    with alone(tmp_path):
        state = fit(training, Checkpoints(tmp_path, Identity("recipe", "data")))
    losses = [row["loss"] for row in state.rows]
    assert losses[-1] < losses[0]
    assert model.weights != before
    assert state.best >= state.rows[0]["sum"]


def test_saved_and_loaded_again_it_gives_the_same_vectors(begin, tmp_path):
    model, data = world(begin)
    first = make_model(begin)
    assert np.abs(model.embed(model.preparation.prepare(pictures())).numpy() - first.embed_images(pictures())).max() < 1e-6
    assert np.abs(model.embed_texts(TEXTS).numpy() - first.embed_texts(TEXTS)).max() < 1e-6
    with alone(tmp_path):
        fit(
            Training(model, objective("info-nce"), {}, data, data, SETTINGS, judged_in_parts),
            Checkpoints(tmp_path, Identity("r", "d")),
        )
    again = make_model(model.write(tmp_path).replace("FOLDER", str(tmp_path)))
    seen = model.embed(model.preparation.prepare(pictures())).numpy()
    assert np.abs(again.embed_images(pictures()) - seen).max() < 1e-6
    assert np.abs(again.embed_texts(TEXTS) - model.embed_texts(TEXTS).numpy()).max() < 1e-6
    assert np.abs(seen - first.embed_images(pictures())).max() > 1e-3  # it has learned something
    assert weights_of(again.net) == model.weights


def test_the_loss_is_the_librarys_own(transformers, hf_clip):
    """transformers computes CLIP's loss itself: the mean of two cross-entropies over the batch."""
    model, data = world(hf_clip)
    images = np.arange(4)
    captions = np.array([0, 3, 6, 9])
    tokens = model.match.read_all(data.captions)[torch.from_numpy(captions)]
    from crossmatch.train.batch import Batch

    batch = Batch(data.store.take(images), tokens, torch.from_numpy(images))
    loss = objective("info-nce")(model.match, batch, {})
    net = transformers.CLIPModel.from_pretrained(hf_clip.removeprefix("hf:"))
    own = net(input_ids=tokens.numbers, attention_mask=tokens.real, pixel_values=batch.regions, return_loss=True).loss
    assert float(loss.detach()) == pytest.approx(float(own.detach()), rel=1e-5)
    loss.backward()
    own.backward()
    slopes = dict(net.named_parameters())
    for name, values in model.match.net.named_parameters():
        if slopes[name].grad is not None:
            assert torch.allclose(values.grad, slopes[name].grad, atol=1e-5), name
    assert float(model.match.logit_scale.grad) != 0


def test_judged_some_at_a_time_it_is_the_same(hf_clip):
    from crossmatch.train.loop import judged_by_kind

    for hard in (False, True):
        model, data = world(hf_clip, hard)
        assert judged_in_parts(model, data) == pytest.approx(judged_by_kind(model, data))


# -- from words to a folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A collection of plain colours, and hard negatives in a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/images").mkdir(parents=True)
    rows, hard = ["image,caption"], ["image,caption,negative_caption,negative_image"]
    rng, names = np.random.default_rng(0), list(COLOURS)
    for n in range(12):
        name = names[n % 4]
        Image.fromarray(rng.integers(0, 40, (20, 24, 3)).astype(np.uint8) + np.uint8(np.array(COLOURS[name]) * 0.8)).save(
            f"mine/images/{n}.png"
        )
        rows += [f"{n}.png,a {name} {WORDS[n % 3]}", f"{n}.png,the {name} {WORDS[n % 3]} on a cup"]
        hard.append(f"{n}.png,a {name} {WORDS[n % 3]},a {names[(n + 1) % 4]} {WORDS[n % 3]},{(n + 1) % 12}")
    (tmp_path / "mine/captions.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "hard.csv").write_text("\n".join(hard) + "\n")
    return tmp_path


CHANGED = ["train.epochs=2", "train.batch=4", "train.learning_rate=1e-3", "train.warm_up_steps=1"]


def tuned(begin, recipe="clip-in-batch", output="runs/x", overrides=CHANGED, **how):
    from crossmatch.train.zoo import train_zoo

    return train_zoo(recipe, output, begin=begin, data="collection:mine", overrides=overrides, **how)


@pytest.mark.parametrize("recipe", ["clip-in-batch", "clip-hard-texts", "clip-hard-pairs"])
def test_by_every_recipe_of_clip(hf_clip, folder, recipe):
    asked = Asked(negatives=None if recipe == "clip-in-batch" else Path("hard.csv"))
    model = tuned(hf_clip, recipe, asked=asked)
    assert model.name == "hf:runs/x"
    assert model.recipe["begin"]["name"] == hf_clip
    assert make_model(model.name).signature.startswith("hf:x|embed|")
    assert {"config.json", "model.safetensors", "log.csv", "fine-tuned.json"} <= {path.name for path in Path("runs/x").iterdir()}
    assert not Path("runs/x/checkpoints").exists()


def test_it_goes_on_where_it_was_stopped(quick, folder, monkeypatch):
    whole = tuned(quick, output="runs/whole")
    from crossmatch.train import loop

    true, calls = loop._stepped, []

    def stopped(*given):
        calls.append(0)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return true(*given)

    monkeypatch.setattr(loop, "_stepped", stopped)
    with pytest.raises(KeyboardInterrupt):
        tuned(quick, every=0.0)
    monkeypatch.setattr(loop, "_stepped", true)
    said: list[str] = []
    again = tuned(quick, tell=said.append)
    assert "goes on after epoch" in said[0]
    assert again.weights == whole.weights
    assert again.name == "open_clip:tiny,runs/x/open_clip.pt,quickgelu"
    finished = tuned(quick, tell=said.append)
    assert "nothing is left to train" in said[-1]
    assert (finished.name, finished.weights, finished.recipe) == (again.name, again.weights, again.recipe)
    Path("runs/x").rename("runs/moved")
    assert tuned(quick, output="runs/moved").name == "open_clip:tiny,runs/moved/open_clip.pt,quickgelu"
    with pytest.raises(CrossmatchError, match=r"another recipe.*--restart"):
        tuned(quick, output="runs/moved", overrides=[*CHANGED, "train.seed=1"])
    assert tuned(quick, output="runs/moved", overrides=[*CHANGED, "train.seed=1"], restart=True).weights != again.weights


def test_half_a_model_is_trained_again(hf_clip, folder):
    whole = tuned(hf_clip)
    Path("runs/x/model.safetensors").unlink()
    assert tuned(hf_clip).weights == whole.weights
    assert Path("runs/x/model.safetensors").is_file()


def test_what_cannot_be_fine_tuned(hf_clip, folder):
    recipe = load_recipe("clip-in-batch", "collection")
    for given, why in (
        ({"recipe": load_recipe("vse0", "collection")}, "family 'vse'; hf:.*clip-in-batch"),
        ({"data": "precomp:mine"}, "looks at pictures, and precomp:mine has regions alone"),
        ({"asked": Asked(regions=Path("r.npy"))}, "Leave --regions out"),
    ):
        words = {"recipe": recipe, "data": "collection:mine"} | given
        with pytest.raises(WrongWords, match=why):
            fine_tune(words.pop("recipe"), "runs/x", hf_clip, **words)
    assert not Path("runs").exists()


def test_a_bad_picture_is_mended_not_skipped(hf_clip, folder):
    Path("mine/images/3.png").write_bytes(b"no picture")
    with pytest.raises(CrossmatchError, match=r"3\.png") as error:
        tuned(hf_clip)
    assert "--skip-bad" not in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "kind"), [("clip-in-batch", "unused"), ("clip-hard-texts", "texts"), ("clip-hard-pairs", "pairs")]
)
def test_on_the_embedded_world_it_is_trained_as_published(hf_clip, tmp_path, monkeypatch, recipe, kind):
    from crossmatch.train.zoo import train_zoo

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["train.epochs=1", "train.batch=4", "train.validation=3"]
    model = train_zoo(recipe, tmp_path / "x", begin=hf_clip, overrides=words, asked=Asked(images=6, size="tiny"))
    assert (model.recipe["train"]["learning_rate"], model.recipe["negatives"]["kind"]) == (1e-6, kind)
    assert model.recipe["data"] == "diorama"
    assert "val tneg2i" in (tmp_path / "x/log.csv").read_text()


def test_its_pictures_of_the_embedded_world_are_those_of_the_trials(hf_clip, tmp_path, monkeypatch):
    from crossmatch.diorama.draw import draw
    from crossmatch.diorama.layout import sample_scene
    from crossmatch.train.hard import edited
    from crossmatch.train.recipe import NegativeSettings
    from crossmatch.train.sources import source

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepare = begun_with(hf_clip).preparation
    hard = NegativeSettings("pairs", style="generator")
    train, _ = source("diorama", {"kind": "pictures", "prepare": prepare}, Asked(images=4, size="tiny", judged=3, hard=hard)).load()
    (image, _), (other, negative) = train.links[2], train.hard[2]
    one = next(edited("train", int(image)))
    wanted = [draw(sample_scene("diorama", 0, "train", int(image))), draw(one.scene, "generator")]
    assert torch.equal(train.store.take(np.array([image, other])), prepare.prepare(wanted))
    assert train.captions[negative] == one.edit.negative.text


def test_a_captioner_is_no_clip(transformers, saved, make_tokenizer, folder):
    tokenizer = make_tokenizer(("[UNK]", "<end>"), "", bos_token="<end>", eos_token="<end>", model_max_length=64)
    text = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=4, n_positions=48, bos_token_id=1, eos_token_id=1
    )
    vision = transformers.ViTConfig(**TINY.tower(image_size=16, patch_size=8))
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    config.decoder_start_token_id, config.pad_token_id = 1, 1
    made = saved(
        "gpt2", config, "VisionEncoderDecoderModel", tokenizer, transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    )
    with pytest.raises(WrongWords, match="does not embed images and texts"):
        begun_with(f"hf:{made}")


def test_on_the_command_line(hf_clip, folder, monkeypatch, capsys):
    from crossmatch.cli import main

    words = ["train", "clip-in-batch", "--begin", hf_clip, "--data", "collection:mine", "-o", "runs/x"]
    monkeypatch.setattr(sys, "argv", ["crossmatch", *words, *(part for word in CHANGED for part in ("--set", word))])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    out = capsys.readouterr().out
    assert "crossmatch run -m hf:runs/x -t collection:mine" in out
    for name in ("runs/x", "./runs/x"):  # by its folder alone, as models that are trained here are called
        with pytest.raises(WrongWords, match=rf"{name} holds a fine-tuned model of another library.*: -m hf:{Path(name)}$"):
            make_model(name)
    monkeypatch.chdir("runs")
    with pytest.raises(WrongWords, match=r"x holds a fine-tuned model of another library.*: -m hf:x$"):
        make_model("x")
    with pytest.raises(WrongWords, match="--begin x: it holds a fine-tuned model of another library: --begin hf:x"):
        tuned("x", output="y")


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@pytest.mark.parametrize("restart", [False, True])
def test_the_model_it_begins_with_is_never_overwritten(hf_clip, folder, restart):
    import shutil

    for name in ("own", "other"):
        shutil.copytree(hf_clip.removeprefix("hf:"), name)
    before = contents("own")
    with pytest.raises(WrongWords, match="also where the model would be written"):
        tuned("hf:own", output="own", restart=restart)
    with pytest.raises(CrossmatchError, match=r"other holds config.json and \d+ more, which this training did not write"):
        tuned("hf:own", output="other", restart=restart)
    assert contents("own") == contents("other") == before


def test_the_folder_of_an_open_clip_name():
    from crossmatch.train.foreign import folder_of

    assert folder_of("open_clip:local-dir:runs/a,quickgelu") == Path("runs/a")
    assert folder_of("open_clip:hf-hub:org/name") is None
    assert folder_of(f"open_clip:ViT-B-32,{__file__},gelu") == Path(__file__).parent


def test_a_log_beside_it_does_no_harm_and_a_restart_that_was_stopped_goes_on(hf_clip, folder, monkeypatch):
    from crossmatch.train import fine_tune as tuning

    Path("runs/x").mkdir(parents=True)
    Path("runs/x/train.log").write_text("")
    whole = tuned(hf_clip)

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        tuned(hf_clip, restart=True)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert tuned(hf_clip).weights == whole.weights


def test_a_folder_called_as_the_library_can_be_moved(hf_clip, folder):
    tuned(hf_clip, output="hf")
    assert json.loads(Path("hf/fine-tuned.json").read_text())["name"] == "hf:FOLDER"
    Path("hf").rename("moved")
    assert tuned(hf_clip, output="moved").name == "hf:moved"
    told = json.loads(Path("moved/fine-tuned.json").read_text())
    Path("moved/fine-tuned.json").write_text(json.dumps(told | {"name": "FOLDER:FOLDER"}))
    with pytest.raises(CrossmatchError, match=r"calls the model 'FOLDER:FOLDER'; hf:FOLDER"):
        tuned(hf_clip, output="moved")
