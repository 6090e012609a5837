"""Models of open_clip against the forward pass of the library, on tiny random networks."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError

torch = pytest.importorskip("torch")

from crossmatch.models.adapters import open_clip as adapter
from crossmatch.models.adapters.clip_activation import IMPLICIT_QUICKGELU
from crossmatch.models.adapters.open_clip import open_clip_model, parse_clip_name
from crossmatch.models.files.checkpoint_files import offline

LIMIT = 1e-5
CONFIG: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
OTHER = CONFIG | {"vision_cfg": CONFIG["vision_cfg"] | {"width": 48}}
TEXTS = ["a red cup", "", "two dogs on a sofa, and a cat under it", "word " * 90, "a red cup"]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def library(open_clip: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """open_clip with additional tiny architectures."""
    from open_clip import factory

    before = list(factory._MODEL_CONFIG_PATHS), dict(factory._MODEL_CONFIGS)
    folder = tmp_path_factory.mktemp("configs")
    configs = {"tiny": CONFIG, "tiny-quickgelu": CONFIG | {"quick_gelu": True}, "tiny-wide": OTHER}
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    yield open_clip
    factory._MODEL_CONFIG_PATHS[:], factory._MODEL_CONFIGS = before


def make_network(library: Any, name: str = "tiny", seed: int = 0) -> Any:
    """A random network with weights large enough that the two activations differ."""
    torch.manual_seed(seed)
    with offline():
        net = library.create_model(name).eval()
    with torch.no_grad():
        for values in net.parameters():
            values.add_(0.1 * torch.randn_like(values))
    return net


@pytest.fixture(scope="module")
def net(library: Any) -> Any:
    return make_network(library)


@pytest.fixture(scope="module")
def quick(library: Any) -> Any:
    return make_network(library, "tiny-quickgelu")


def pictures() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    sizes = [(40, 60), (32, 32), (91, 33), (20, 24), (64, 48)]
    images = [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    return [*images, images[0].convert("L"), images[2].convert("RGBA"), images[4].convert("CMYK")]


def embed_with_library(library: Any, net: Any, images: list[Image.Image], texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Embed images and texts with the library, one by one."""
    transform = library.image_transform(net.visual.image_size, is_train=False)
    tokenizer = library.get_tokenizer("tiny")
    with torch.no_grad():
        image_vectors = [net.encode_image(transform(image)[None], normalize=True)[0].numpy() for image in images]
        text_vectors = [net.encode_text(tokenizer([text]), normalize=True)[0].numpy() for text in texts]
    return np.stack(image_vectors), np.stack(text_vectors)


def save(path: Path, net: Any, **more: Any) -> Path:
    torch.save({"epoch": 3, "name": "run", "state_dict": net.state_dict(), **more}, path)
    return path


# -- equal to the library


@pytest.fixture(scope="module")
def model(library: Any, net: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_clip_model(f"tiny,{save(tmp_path_factory.mktemp('clip') / 'a.pt', net)},gelu")


def test_checkpoint_embeds_as_the_library(library: Any, net: Any, model: Any) -> None:
    images = pictures()
    image_vectors, text_vectors = embed_with_library(library, net, images, TEXTS)
    assert np.abs(model.embed_images(images) - image_vectors).max() < LIMIT
    assert np.abs(model.embed_texts(TEXTS) - text_vectors).max() < LIMIT
    assert model.embed_images(images).dtype == np.float32
    assert model.similarity == "cosine"
    assert np.abs(np.linalg.norm(model.embed_texts(TEXTS), axis=1) - 1).max() < LIMIT


def test_activations_differ_by_more_than_rounding(library: Any, net: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", net)
    plain, quick = (open_clip_model(f"tiny,{path},{activation}") for activation in ("gelu", "quickgelu"))
    assert np.abs(plain.embed_texts(TEXTS) - quick.embed_texts(TEXTS)).max() > 100 * LIMIT
    assert np.abs(plain.embed_images(pictures()) - quick.embed_images(pictures())).max() > 100 * LIMIT
    assert plain.signature != quick.signature


def test_quickgelu_equals_that_of_the_library(library: Any, quick: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", quick)
    images = pictures()
    image_vectors, text_vectors = embed_with_library(library, quick, images, TEXTS)
    for name in (f"tiny,{path},quickgelu", f"tiny-quickgelu,{path}"):
        model = open_clip_model(name)
        assert np.abs(model.embed_images(images) - image_vectors).max() < LIMIT
        assert np.abs(model.embed_texts(TEXTS) - text_vectors).max() < LIMIT


def test_batches_and_order_do_not_change_embeddings(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    images, order = pictures(), np.array([6, 2, 0, 7, 1, 5, 3, 4])
    whole, texts = model.embed_images(images), model.embed_texts(TEXTS)
    shuffled = model.embed_images([images[n] for n in order])
    assert np.abs(shuffled - whole[order]).max() < LIMIT
    monkeypatch.setattr(adapter, "BATCH", 3)
    assert np.abs(model.embed_images(images) - whole).max() < LIMIT
    assert np.abs(model.embed_texts(TEXTS[::-1]) - texts[::-1]).max() < LIMIT
    assert np.abs(np.concatenate([model.embed_texts([text]) for text in TEXTS]) - texts).max() < LIMIT


def test_prepared_images_get_the_same_embeddings(model: Any) -> None:
    prepared = model.prepare_images(pictures())
    assert prepared.shape == (8, 3, 32, 32)
    assert np.array_equal(model.embed_prepared(prepared), model.embed_images(pictures()))


def test_empty_inputs_give_empty_arrays(model: Any) -> None:
    assert model.embed_images([]).shape == model.embed_texts([]).shape == (0, 16)
    assert model.truncated([]).shape == (0,)


def test_texts_are_truncated_after_75_words(model: Any) -> None:
    assert model.longest == 77
    texts = ["dog " * n for n in (1, 74, 75, 76, 200)] + [""]  # with start and end token, 75 words fill 77 positions
    assert model.truncated(texts).tolist() == [False, False, False, True, True, False]
    vectors = model.embed_texts(["dog " * 75, "dog " * 76, "dog " * 200])
    assert np.abs(vectors[0] - vectors[2]).max() < LIMIT


# -- checkpoint files


@pytest.mark.parametrize(("key", "prefix"), [("state_dict", ""), ("model_state_dict", "module."), (None, "module._orig_mod.")])
def test_wrapped_and_nested_checkpoints_are_read(library: Any, net: Any, tmp_path: Path, key: str | None, prefix: str) -> None:
    weights = {prefix + name: values for name, values in net.state_dict().items()}
    optimiser = torch.optim.AdamW(net.parameters()).state_dict()
    args = argparse.Namespace(model="tiny", lr=1e-6)
    content = {"epoch": np.int64(4), "args": args, "optimizer": optimiser, key: weights} if key else weights
    torch.save(content, tmp_path / "a.pt")
    model = open_clip_model(f"tiny,{tmp_path / 'a.pt'},gelu")
    assert all(torch.equal(values, model.net.state_dict()[name]) for name, values in net.state_dict().items())


def test_half_precision_safetensors_are_read(net: Any, model: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: values.clone().half() for name, values in net.state_dict().items()}, tmp_path / "a.safetensors")
    half = open_clip_model(f"tiny,{tmp_path / 'a.safetensors'},gelu")
    assert {values.dtype for values in half.net.state_dict().values()} == {torch.float32}
    assert np.abs(half.embed_texts(TEXTS) - model.embed_texts(TEXTS)).max() < 1e-2


def test_weights_of_another_architecture_are_refused(library: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "wide.pt", make_network(library, "tiny-wide"))
    with pytest.raises(
        CrossmatchError,
        match=r"wide\.pt does not fit tiny: .*another shape.* Its sizes are those of tiny-wide.*open_clip:tiny-wide,FILE",
    ):
        open_clip_model(f"tiny,{path},gelu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"visual.positional_embedding": torch.randn(37, 32)}, "does not fit tiny: 1 weights have another shape"),  # of 48 pixels
        ({"ln_final.bias": None, "extra": torch.zeros(16)}, r"1 weights are missing \(first 'ln_final.bias'\), 1 are unknown"),
        ({"visual.proj": torch.full((32, 16), torch.nan)}, r"a\.pt: 512 of the 512 numbers in 'visual\.proj' are NaN"),
    ],
)
def test_wrong_weights_are_refused(library: Any, net: Any, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    weights = {name: values for name, values in {**net.state_dict(), **changes}.items() if values is not None}
    torch.save(weights, tmp_path / "a.pt")
    with pytest.raises(CrossmatchError, match=message):
        open_clip_model(f"tiny,{tmp_path / 'a.pt'},gelu")


def test_damaged_and_foreign_files_are_refused(library: Any, net: Any, tmp_path: Path) -> None:
    whole = save(tmp_path / "a.pt", net).read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "page.pt").write_bytes(b"<html>not found</html>")
    for name in ("half.pt", "page.pt"):
        with pytest.raises(CrossmatchError, match=rf"{name} cannot be read as a checkpoint .* download it again"):
            open_clip_model(f"tiny,{tmp_path / name},gelu")
    torch.save({"a": [1, 2]}, tmp_path / "list.pt")
    with pytest.raises(CrossmatchError, match="has no weights by name"):
        open_clip_model(f"tiny,{tmp_path / 'list.pt'},gelu")
    torch.save({"state_dict": net.state_dict(), "hook": Path("a")}, tmp_path / "objects.pt")
    with pytest.raises(CrossmatchError, match="contains Python objects beside its weights"):
        open_clip_model(f"tiny,{tmp_path / 'objects.pt'},gelu")


def test_wrong_names_are_refused(library: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a file nor one of open_clip's weights for tiny"):
        open_clip_model(f"tiny,{tmp_path / 'none.pt'},gelu")
    with pytest.raises(UsageError, match=r"no architecture 'tinny'.*Nearest: tiny"):
        open_clip_model("tinny,openai")
    for argument in ("", "ViT-B-32", "ViT-B-32,", ",openai"):
        with pytest.raises(UsageError, match="needs an architecture and its weights"):
            open_clip_model(argument)
    with pytest.raises(UsageError, match="Remove one of them"):
        parse_clip_name("ViT-B-32-quickgelu,a.pt,gelu")


def test_missing_or_broken_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(name: str) -> object:
        raise RuntimeError("operator torchvision::nms does not exist")

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "open_clip", None)
        with pytest.raises(MissingDependencyError, match=r"crossmatch\[clip\]"):
            open_clip_model("ViT-B-32,openai")
    monkeypatch.setattr("crossmatch.models.files.checkpoint_files.importlib.import_module", unfit)
    with pytest.raises(CrossmatchError, match=r"open_clip cannot be imported .*Install the torchvision that was built for torch"):
        open_clip_model("ViT-B-32,openai")


# -- offline


def test_error_for_missing_weights_says_how_to_download_them(library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        CrossmatchError,
        match=r"open_clip:ViT-B-32,openai are not on this machine.*hf download timm/vit_base_patch32_clip_224.openai",
    ):
        open_clip_model("ViT-B-32,openai")
    with pytest.raises(CrossmatchError, match=r"open_clip_config\.json and its weights cannot be found.*hf download org/name"):
        open_clip_model("hf-hub:org/name")


def make_description(quick: bool | None, **preprocessing: Any) -> bytes:
    config = CONFIG if quick is None else CONFIG | {"quick_gelu": quick}
    return json.dumps({"model_cfg": config, "preprocess_cfg": preprocessing}).encode()


def test_cached_repository_and_folder_give_the_same_model(library: Any, quick: Any, hub: Any, tmp_path: Path) -> None:
    weights = save(tmp_path / "w.bin", quick).read_bytes()
    description = make_description(
        True, mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25], interpolation="bilinear", resize_mode="squash"
    )
    hub("org/name", {"open_clip_config.json": description, "open_clip_pytorch_model.bin": weights})
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "open_clip_config.json").write_bytes(description)
    (folder / "weights.pth").write_bytes(weights)
    cached, local = open_clip_model("hf-hub:org/name"), open_clip_model(f"local-dir:{folder}")
    transform = library.image_transform(
        32, is_train=False, mean=(0.5,) * 3, std=(0.25,) * 3, interpolation="bilinear", resize_mode="squash"
    )
    with torch.no_grad():
        expected = quick.encode_image(torch.stack([transform(image) for image in pictures()]), normalize=True).numpy()
    for model in (cached, local):
        assert np.abs(model.embed_images(pictures()) - expected).max() < LIMIT
        assert np.abs(model.embed_texts(TEXTS) - embed_with_library(library, quick, pictures()[:1], TEXTS)[1]).max() < LIMIT
        assert model.notes == ()
    assert cached.signature.partition("|")[2] == local.signature.partition("|")[2]
    assert "pixels:32x32/squash/bilinear" in cached.signature or "pixels:32/squash/bilinear" in cached.signature
    plain = open_clip_model(f"local-dir:{folder},gelu")
    assert plain.notes == ("activation GELU as requested, though its open_clip_config.json says so, which means QuickGELU",)


def test_incomplete_folder_is_refused(library: Any, tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=r"open_clip_config\.json and its weights cannot be found"):
        open_clip_model(f"local-dir:{tmp_path}")
    (tmp_path / "open_clip_config.json").write_text("[]")
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(CrossmatchError, match="has no model_cfg"):
        open_clip_model(f"local-dir:{tmp_path}")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"model_cfg": []}, "model_cfg must be a table"),
        ({"model_cfg": CONFIG, "preprocess_cfg": "squash"}, "preprocess_cfg must be a table"),
        ({"model_cfg": {"vision_cfg": {}}}, r"embed_dim of model_cfg must be a whole number above 0 \(got absent"),
        ({"model_cfg": CONFIG | {"embed_dim": "64"}}, r"embed_dim of model_cfg must be a whole number above 0 \(got '64'"),
        ({"model_cfg": CONFIG | {"quick_gelu": "no"}}, "quick_gelu of model_cfg must be true or false"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"std": [0, 0, 0]}}, "std of preprocess_cfg must be three numbers above 0"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0, 0, 10**400]}}, "mean of preprocess_cfg must be three numbers"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0.5]}}, "mean of preprocess_cfg must be three numbers"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"mean": ["0", "0", "0"]}}, "mean of preprocess_cfg must be three numbers"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"resize_mode": []}}, "resize_mode of preprocess_cfg must be one of shortest"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"fill_color": -1}}, "fill_color of preprocess_cfg must be a whole number"),
    ],
)
def test_description_with_wrong_values_is_refused(
    library: Any, quick: Any, tmp_path: Path, description: dict[str, Any], message: str
) -> None:
    (tmp_path / "open_clip_config.json").write_text(json.dumps(description))
    save(tmp_path / "a.bin", quick)
    with pytest.raises(CrossmatchError, match=message):
        open_clip_model(f"local-dir:{tmp_path}")


def test_tag_with_quickgelu_is_corrected_and_noted(
    library: Any, quick: Any, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for ViT-B-32,openai, where open_clip itself only warns and takes GELU."""
    from open_clip import pretrained

    quick_row = pretrained._pcfg(hf_hub="org/tiny/", quick_gelu=True)
    plain_row = pretrained._pcfg(hf_hub="org/tiny/")
    monkeypatch.setitem(pretrained._PRETRAINED, "tiny", {"first": quick_row, "second": plain_row})
    hub("org/tiny", {"open_clip_pytorch_model.bin": save(tmp_path / "w.bin", quick).read_bytes()})
    model = open_clip_model("tiny,first")
    assert model.notes == model.notes_on(None) == ("activation QuickGELU: the released weights 'first'",)
    image_vectors, text_vectors = embed_with_library(library, quick, pictures(), TEXTS)
    assert np.abs(model.embed_images(pictures()) - image_vectors).max() < LIMIT
    assert np.abs(model.embed_texts(TEXTS) - text_vectors).max() < LIMIT
    assert open_clip_model("tiny-quickgelu,first").notes == ()
    assert open_clip_model("tiny,second").notes == ()
    with pytest.raises(CrossmatchError, match=r"trained with QuickGELU \(the released weights 'first'\), but GELU is requested"):
        open_clip_model("tiny,first,gelu")
    with pytest.raises(CrossmatchError, match="trained with GELU"):
        open_clip_model("tiny-quickgelu,second")


def test_building_changes_no_global_state(library: Any, net: Any, tmp_path: Path) -> None:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, logging.root.manager.disable, list(logging.root.handlers)
    open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    assert (constants.HF_HUB_OFFLINE, logging.root.manager.disable, list(logging.root.handlers)) == before


# -- the activation


def test_error_for_unknown_activation_names_both_options(library: Any, net: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "finetuned.pt", net)
    with pytest.raises(UsageError, match=r"unknown which activation.*,quickgelu\..*,gelu$"):
        open_clip_model(f"tiny,{path}")


@pytest.mark.parametrize(
    "name", ["negclip.pth", "negCLIP.pt", "GNM_epoch3.pt", "best_CLIP_COCO_9.pt", "best_CLIP_TROHN-Text_9.pt", "clip_trohn-img.pt"]
)
def test_fine_tuned_openai_checkpoints_are_recognised_by_name(library: Any, quick: Any, tmp_path: Path, name: str) -> None:
    path = save(tmp_path / name, quick)
    model = open_clip_model(f"tiny,{path}")
    assert "|quickgelu|" in model.signature
    assert f"activation QuickGELU: {name} is" in model.notes[0]
    assert open_clip_model(f"tiny,{path},gelu").notes[0].startswith("activation GELU as requested, though")


def test_torchscript_archive_means_quickgelu(library: Any, quick: Any, tmp_path: Path) -> None:
    class Shell(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, child in quick.named_children():
                setattr(self, name, child)
            for name, values in quick.named_parameters(recurse=False):
                setattr(self, name, values)
            self.register_buffer("context_length", torch.tensor(77))

        def forward(self, x: Any) -> Any:
            return x + self.logit_scale

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.trace(Shell(), torch.zeros(1)).save(str(tmp_path / "model.pt"))
    model = open_clip_model(f"tiny,{tmp_path / 'model.pt'}")
    assert model.notes == ("activation QuickGELU: model.pt is a TorchScript archive, as OpenAI released them",)
    image_vectors, _ = embed_with_library(library, quick, pictures(), TEXTS)
    assert np.abs(model.embed_images(pictures()) - image_vectors).max() < LIMIT
    with pytest.raises(CrossmatchError, match="trained with QuickGELU"):
        open_clip_model(f"tiny,{tmp_path / 'model.pt'},gelu")


def test_openai_weights_have_quickgelu_in_the_table(library: Any) -> None:
    assert adapter._list_released_weights("ViT-B-32")["openai"]["quick_gelu"] is True
    assert not adapter._list_released_weights("ViT-B-32")["laion2b_s34b_b79k"].get("quick_gelu")


def test_architecture_without_variant_is_plain_unless_requested(library: Any, tmp_path: Path) -> None:
    net = make_network(library, "tiny-wide")
    path = save(tmp_path / "a.pt", net)
    assert open_clip_model(f"tiny-wide,{path}").notes == ()
    forced = open_clip_model(f"tiny-wide,{path},quickgelu")
    assert forced.notes == (
        "activation QuickGELU as requested, though open_clip has tiny-wide with this activation only, which means GELU",
    )
    with offline():
        quick_net = library.create_model("tiny-wide", force_quick_gelu=True).eval()
    quick_net.load_state_dict(net.state_dict())
    with torch.no_grad():
        expected = quick_net.encode_text(library.get_tokenizer("tiny")(TEXTS), normalize=True).numpy()
    assert np.abs(forced.embed_texts(TEXTS) - expected).max() < LIMIT
    trained = save(tmp_path / "b.pt", net, args={"model": "tiny-wide", "force_quick_gelu": True})
    model = open_clip_model(f"tiny-wide,{trained}")
    assert model.notes == ("activation QuickGELU: the training's arguments in b.pt say so",)
    assert np.abs(model.embed_texts(TEXTS) - expected).max() < LIMIT
    with pytest.raises(CrossmatchError, match="but GELU is requested"):
        open_clip_model(f"tiny-wide,{trained},gelu")


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """A folder of this name, described as GELU or as QuickGELU, with these weights."""

    def make(name: str, quick: bool | None, net: Any, **more: Any) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "open_clip_config.json").write_bytes(make_description(quick))
        save(tmp_path / name / "open_clip_pytorch_model.bin", net, **more)
        return tmp_path / name

    return make


def test_certain_evidence_corrects_the_description(library: Any, quick: Any, folder: Any) -> None:
    """The training arguments prove QuickGELU, so the description is corrected, with a note."""
    path = folder("a", None, quick, args={"model": "ViT-B-32", "force_quick_gelu": True})
    model = open_clip_model(f"local-dir:{path}")
    assert model.notes == (
        "activation QuickGELU: the training's arguments in open_clip_pytorch_model.bin say so; its description means GELU",
    )
    assert np.abs(model.embed_texts(TEXTS) - embed_with_library(library, quick, pictures()[:1], TEXTS)[1]).max() < LIMIT
    with pytest.raises(CrossmatchError, match="but GELU is requested"):
        open_clip_model(f"local-dir:{path},gelu")
    same = folder("b", True, quick, args={"model": "ViT-B-32", "force_quick_gelu": True})
    assert open_clip_model(f"local-dir:{same}").notes == ()
    with pytest.raises(CrossmatchError, match="but GELU is requested"):
        open_clip_model(f"local-dir:{same},gelu")


def test_uncertain_evidence_against_the_description_needs_a_choice(library: Any, quick: Any, folder: Any, hub: Any) -> None:
    """Evidence from a folder or repository name, or from the initial weights, needs the user's choice."""
    began = folder("a", None, quick, args={"model": "ViT-B-32", "pretrained": "openai"})
    named = folder("negclip", None, quick)
    plain = folder("c", True, quick, args={"model": "ViT-B-32", "pretrained": ""})
    parts = {path.name: path.read_bytes() for path in named.iterdir()}
    hub("org/negclip", parts)
    for name in (f"local-dir:{began}", f"local-dir:{named}", f"local-dir:{plain}", "hf-hub:org/negclip"):
        with pytest.raises(UsageError, match=r"says so\), but .* Say which: open_clip:.*,quickgelu or open_clip:.*,gelu$"):
            open_clip_model(name)
        for how in ("gelu", "quickgelu"):
            model = open_clip_model(f"{name},{how}")
            assert f"|{how}|" in model.signature
            assert "as requested, though" in model.notes[0]


def test_released_repository_gets_its_activation(library: Any, quick: Any, hub: Any, tmp_path: Path) -> None:
    weights = save(tmp_path / "w.bin", quick).read_bytes()
    released = {"open_clip_config.json": make_description(None), "open_clip_pytorch_model.bin": weights}
    hub("timm/vit_base_patch32_clip_224.openai", released)
    model = open_clip_model("hf-hub:timm/vit_base_patch32_clip_224.openai")
    assert model.notes[0].startswith("activation QuickGELU: the released weights 'ViT-B-32")
    assert "|quickgelu|" in model.signature


def test_architectures_with_implicit_quickgelu_are_listed(library: Any) -> None:
    """Their rows in the table of released weights do not mention it either."""
    embed_with_library = [name for name in library.list_models() if library.get_model_config(name).get("quick_gelu")]
    assert sorted(name for name in embed_with_library if not name.endswith("-quickgelu")) == sorted(IMPLICIT_QUICKGELU)
    assert all(row["quick_gelu"] for name in IMPLICIT_QUICKGELU for row in adapter._list_released_weights(name).values())


# -- the signature


def test_signature_changes_with_the_weights(library: Any, net: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", net)
    first = open_clip_model(f"tiny,{path},gelu").signature
    assert first.startswith("open_clip:tiny,a.pt|open_clip:")
    assert first.endswith("|tokens:77|fp32")
    assert open_clip_model(f"tiny,{path},gelu").signature == first
    (tmp_path / "b").mkdir()
    changed = save(tmp_path / "b" / "a.pt", make_network(library, seed=1))
    assert open_clip_model(f"tiny,{changed},gelu").signature != first
