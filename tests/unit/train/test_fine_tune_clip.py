"""Fine-tuning of open_clip and transformers models: the loss falls, equals that of the library, and the result can be loaded."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from crossmatch.models import make_model
from crossmatch.models.files.model_folder import hash_weights
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity
from crossmatch.train.data.sources import DataOptions
from crossmatch.train.data.training_set import TrainingSet
from crossmatch.train.fine_tune_clip import fine_tune, validate_in_batches
from crossmatch.train.loop import fit
from crossmatch.train.objectives import make_objective, parse_objective
from crossmatch.train.output_folder import lock_folder
from crossmatch.train.pretrained_clip import load_external_model
from crossmatch.train.recipe import TrainSettings, load_recipe
from crossmatch.train.zoo_training import ZooTraining

sys.path.insert(0, str(Path(__file__).parent))
from toy import interrupt, stop_at_step


def _load_fixtures(name: str) -> Any:
    """The fixtures of the adapters' tests: tiny saved models with random weights."""
    path = Path(__file__).parents[1] / "models" / name
    spec = importlib.util.spec_from_file_location(f"fixtures_{name.replace('/', '_').removesuffix('.py')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LIBRARY, TINY = _load_fixtures("conftest.py"), _load_fixtures("adapters/transformers/conftest.py")
torchvision_operators, open_clip = LIBRARY.torchvision_operators, LIBRARY.open_clip
transformers, make_tokenizer, saved, _one_thread = TINY.transformers, TINY.make_tokenizer, TINY.saved, TINY._one_thread

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "black": (10, 10, 10)}
WORDS = ("cat", "dog", "cup")
CONFIG: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
OBJECTIVE = make_objective(*parse_objective({"name": "info-nce"}, "mine"))
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
    """A checkpoint of open_clip whose activation is not that of its architecture."""
    from crossmatch.models.files.checkpoint_files import offline

    torch.manual_seed(0)
    with offline():
        net = architectures.create_model("tiny-quickgelu")
    path = tmp_path_factory.mktemp("open_clip") / "base.pt"
    torch.save({"state_dict": net.state_dict()}, path)
    return f"open_clip:tiny,{path},quickgelu"


@pytest.fixture(scope="module")
def described(architectures, tmp_path_factory):
    """A folder as open_clip's push_to_hf_hub writes it."""
    from crossmatch.models.files.checkpoint_files import offline

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
    model = load_external_model(begin)
    captions = {name: [f"a {name} {word}" for word in WORDS] for name in COLOURS}
    collection = Collection.from_captions(captions, dict(zip(COLOURS, pictures(), strict=True)).get)  # type: ignore[arg-type]
    negatives = None
    if hard:
        next_image = np.roll(np.arange(len(COLOURS)), 1)
        negatives = np.stack([next_image[collection.links[:, 0]], (collection.links[:, 1] + 3) % 12], axis=1)
    return model, TrainingSet(model.preparation(collection), collection.captions, collection.links, negatives)


@pytest.mark.parametrize("hard", [False, True], ids=["in-batch", "hard-pairs"])
def test_loss_falls_and_weights_change(begin, hard, tmp_path):
    model, data = world(begin, hard)
    before = model.weights
    training = ZooTraining(model, OBJECTIVE, data, data, SETTINGS, validate_in_batches)
    with lock_folder(tmp_path):
        state = fit(training, Checkpoints(tmp_path, TrainingIdentity("recipe", "data")))
    losses = [row["loss"] for row in state.rows]
    assert losses[-1] < losses[0]
    assert model.weights != before
    assert state.best >= state.rows[0]["sum"]


def test_saved_model_gives_the_same_vectors(begin, tmp_path):
    model, data = world(begin)
    first = make_model(begin)
    assert np.abs(model.embed(model.preparation.prepare(pictures())).numpy() - first.embed_images(pictures())).max() < 1e-6
    assert np.abs(model.embed_texts(TEXTS).numpy() - first.embed_texts(TEXTS)).max() < 1e-6
    with lock_folder(tmp_path):
        fit(
            ZooTraining(model, OBJECTIVE, data, data, SETTINGS, validate_in_batches),
            Checkpoints(tmp_path, TrainingIdentity("r", "d")),
        )
    again = make_model(model.write(tmp_path).replace("FOLDER", str(tmp_path)))
    vectors = model.embed(model.preparation.prepare(pictures())).numpy()
    assert np.abs(again.embed_images(pictures()) - vectors).max() < 1e-6
    assert np.abs(again.embed_texts(TEXTS) - model.embed_texts(TEXTS).numpy()).max() < 1e-6
    assert np.abs(vectors - first.embed_images(pictures())).max() > 1e-3  # training changed the vectors
    assert hash_weights(again.net) == model.weights


def test_loss_and_gradient_equal_those_of_transformers(transformers, hf_clip):
    """transformers computes CLIP's loss itself: the mean of two cross-entropies over the batch."""
    model, data = world(hf_clip)
    images = np.arange(4)
    captions = np.array([0, 3, 6, 9])
    tokens = model.match.read_all(data.captions)[torch.from_numpy(captions)]
    from crossmatch.train.data.training_set import TrainingBatch

    batch = TrainingBatch(data.store.take(images), tokens, torch.from_numpy(images))
    loss = OBJECTIVE(model.match, batch, 1.0)
    net = transformers.CLIPModel.from_pretrained(hf_clip.removeprefix("hf:"))
    own = net(input_ids=tokens.numbers, attention_mask=tokens.mask, pixel_values=batch.regions, return_loss=True).loss
    assert float(loss.detach()) == pytest.approx(float(own.detach()), rel=1e-5)
    loss.backward()
    own.backward()
    slopes = dict(net.named_parameters())
    for name, values in model.match.net.named_parameters():
        if slopes[name].grad is not None:
            assert torch.allclose(values.grad, slopes[name].grad, atol=1e-5), name
    assert float(model.match.logit_scale.grad) != 0


def test_validation_in_batches_equals_validation(hf_clip):
    from crossmatch.train.validation import validate

    for hard in (False, True):
        model, data = world(hf_clip, hard)
        assert validate_in_batches(model, data) == pytest.approx(validate(model, data))


# -- from a recipe to a folder


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


def tune(begin, recipe="clip-in-batch", output="runs/x", overrides=CHANGED, **how):
    from crossmatch.train.run_recipe import train_recipe

    return train_recipe(recipe, output, begin=begin, data="collection:mine", overrides=overrides, **how)


@pytest.mark.parametrize("recipe", ["clip-in-batch", "clip-hard-texts", "clip-hard-pairs"])
def test_every_clip_recipe_fine_tunes(hf_clip, folder, recipe):
    options = DataOptions(negatives=None if recipe == "clip-in-batch" else Path("hard.csv"))
    model = tune(hf_clip, recipe, options=options)
    assert model.name == "hf:runs/x"
    assert model.recipe["begin"]["name"] == hf_clip
    assert make_model(model.name).signature.startswith("hf:x|embed|")
    assert {"config.json", "model.safetensors", "log.csv", "fine-tuned.json"} <= {path.name for path in Path("runs/x").iterdir()}
    assert not Path("runs/x/checkpoints").exists()


def test_interrupted_fine_tuning_resumes(quick, folder, monkeypatch):
    whole = tune(quick, output="runs/whole")
    with monkeypatch.context() as patch:
        stop_at_step(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            tune(quick, every=0.0)
    messages: list[str] = []
    again = tune(quick, notify=messages.append)
    assert "after epoch" in messages[0]
    assert again.weights == whole.weights
    assert again.name == "open_clip:tiny,runs/x/open_clip.pt,quickgelu"
    finished = tune(quick, notify=messages.append)
    assert "nothing left to train" in messages[-1]
    assert (finished.name, finished.weights, finished.recipe) == (again.name, again.weights, again.recipe)
    Path("runs/x").rename("runs/moved")
    assert tune(quick, output="runs/moved").name == "open_clip:tiny,runs/moved/open_clip.pt,quickgelu"
    with pytest.raises(CrossmatchError, match=r"another recipe.*--restart"):
        tune(quick, output="runs/moved", overrides=[*CHANGED, "train.seed=1"])
    assert tune(quick, output="runs/moved", overrides=[*CHANGED, "train.seed=1"], restart=True).weights != again.weights


def test_incomplete_model_is_trained_again(hf_clip, folder):
    whole = tune(hf_clip)
    Path("runs/x/model.safetensors").unlink()
    assert tune(hf_clip).weights == whole.weights
    assert Path("runs/x/model.safetensors").is_file()


def test_unsuitable_recipes_and_data_are_refused(hf_clip, folder):
    recipe = load_recipe("clip-in-batch", "collection")
    for changes, message in (
        ({"recipe": load_recipe("vse0", "collection")}, "family 'vse'; fine-tuning needs one of 'clip': clip-in-batch"),
        ({"data": "precomp:mine"}, "precomp:mine: .* needs pictures, not regions"),
        ({"options": DataOptions(regions=Path("r.npy"))}, "--regions does not apply"),
    ):
        arguments = {"recipe": recipe, "data": "collection:mine"} | changes
        with pytest.raises(UsageError, match=message):
            fine_tune(arguments.pop("recipe"), "runs/x", hf_clip, **arguments)
    assert not Path("runs").exists()


def test_unreadable_picture_is_an_error(hf_clip, folder):
    Path("mine/images/3.png").write_bytes(b"no picture")
    with pytest.raises(CrossmatchError, match=r"3\.png") as error:
        tune(hf_clip)
    assert "--skip-bad" not in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "kind"), [("clip-in-batch", "unused"), ("clip-hard-texts", "texts"), ("clip-hard-pairs", "pairs")]
)
def test_published_settings_apply_on_diorama(hf_clip, tmp_path, monkeypatch, recipe, kind):
    from crossmatch.train.run_recipe import train_recipe

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["train.epochs=1", "train.batch=4", "train.validation=3"]
    model = train_recipe(recipe, tmp_path / "x", begin=hf_clip, overrides=words, options=DataOptions(images=6, size="tiny"))
    assert (model.recipe["train"]["learning_rate"], model.recipe["negatives"]["kind"]) == (1e-6, kind)
    assert model.recipe["data"] == "diorama"
    assert "val tneg2i" in (tmp_path / "x/log.csv").read_text()


def test_diorama_pictures_equal_those_of_the_trials(hf_clip, tmp_path, monkeypatch):
    from crossmatch.diorama.drawing import draw
    from crossmatch.diorama.scene_sampling import sample_scene
    from crossmatch.train.data.hard_negatives import edit_scene
    from crossmatch.train.data.sources import open_source
    from crossmatch.train.recipe import NegativeSettings

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepare = load_external_model(hf_clip).preparation
    hard = NegativeSettings("pairs", style="generator")
    train, _ = open_source(
        "diorama", {"kind": "pictures", "prepare": prepare}, DataOptions(images=4, size="tiny", validation_images=3, hard=hard)
    ).load()
    (image, _), (negative_image, negative) = train.links[2], train.hard[2]
    edit = next(edit_scene("train", int(image)))
    expected = [draw(sample_scene("diorama", 0, "train", int(image))), draw(edit.scene, "generator")]
    assert torch.equal(train.store.take(np.array([image, negative_image])), prepare.prepare(expected))
    assert train.captions[negative] == edit.edit.negative.text


def test_captioner_is_refused(transformers, saved, make_tokenizer, folder):
    tokenizer = make_tokenizer(("[UNK]", "<end>"), "", bos_token="<end>", eos_token="<end>", model_max_length=64)
    text = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=4, n_positions=48, bos_token_id=1, eos_token_id=1
    )
    vision = transformers.ViTConfig(**TINY.tower(image_size=16, patch_size=8))
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    config.decoder_start_token_id, config.pad_token_id = 1, 1
    folder_of_model = saved(
        "gpt2", config, "VisionEncoderDecoderModel", tokenizer, transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    )
    with pytest.raises(UsageError, match="only models that embed images and texts"):
        load_external_model(f"hf:{folder_of_model}")


def test_command_line(hf_clip, folder, monkeypatch, capsys):
    from crossmatch.cli import main

    words = ["train", "clip-in-batch", "--begin", hf_clip, "--data", "collection:mine", "-o", "runs/x"]
    monkeypatch.setattr(sys, "argv", ["crossmatch", *words, *(part for word in CHANGED for part in ("--set", word))])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    out = capsys.readouterr().out
    assert "crossmatch run -m hf:runs/x -t collection:mine" in out
    for name in ("runs/x", "./runs/x"):  # the folder alone, as for models of the zoo
        with pytest.raises(UsageError, match=rf"{name} contains a fine-tuned model of another library.*: -m hf:{Path(name)}$"):
            make_model(name)
    monkeypatch.chdir("runs")
    with pytest.raises(UsageError, match=r"x contains a fine-tuned model of another library.*: -m hf:x$"):
        make_model("x")
    with pytest.raises(UsageError, match="--begin x: the folder contains a fine-tuned model of another library. Use --begin hf:x"):
        tune("x", output="y")


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@pytest.mark.parametrize("restart", [False, True])
def test_original_model_is_never_overwritten(hf_clip, folder, restart):
    import shutil

    for name in ("own", "other"):
        shutil.copytree(hf_clip.removeprefix("hf:"), name)
    before = contents("own")
    with pytest.raises(UsageError, match="also the output folder"):
        tune("hf:own", output="own", restart=restart)
    with pytest.raises(
        CrossmatchError, match=r"other: .* would replace config.json and \d+ more, which this training did not write"
    ):
        tune("hf:own", output="other", restart=restart)
    assert contents("own") == contents("other") == before


def test_folder_of_an_open_clip_name():
    from crossmatch.train.pretrained_clip import model_folder

    assert model_folder("open_clip:local-dir:runs/a,quickgelu") == Path("runs/a")
    assert model_folder("open_clip:hf-hub:org/name") is None
    assert model_folder(f"open_clip:ViT-B-32,{__file__},gelu") == Path(__file__).parent


def test_interrupted_restart_resumes(hf_clip, folder, monkeypatch):
    from crossmatch.train import fine_tune_clip as tuning

    Path("runs/x").mkdir(parents=True)
    Path("runs/x/train.log").write_text("")
    whole = tune(hf_clip)

    monkeypatch.setattr(tuning, "fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tune(hf_clip, restart=True)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert tune(hf_clip).weights == whole.weights


def test_folder_can_be_moved(hf_clip, folder):
    tune(hf_clip, output="hf")
    assert json.loads(Path("hf/fine-tuned.json").read_text())["name"] == "hf:FOLDER"
    Path("hf").rename("moved")
    assert tune(hf_clip, output="moved").name == "hf:moved"
    description = json.loads(Path("moved/fine-tuned.json").read_text())
    Path("moved/fine-tuned.json").write_text(json.dumps(description | {"name": "FOLDER:FOLDER"}))
    with pytest.raises(CrossmatchError, match=r"has name = 'FOLDER:FOLDER'; expected hf:FOLDER"):
        tune(hf_clip, output="moved")
