"""open_clip's models through the adapter, against the library's own forward, on tiny random networks that were saved to disk."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.sentence import threads

torch = pytest.importorskip("torch")

from crossmatch.models import open_clip as adapter  # noqa: E402
from crossmatch.models.activation import UNSAID  # noqa: E402
from crossmatch.models.open_clip import open_clip_model, parsed  # noqa: E402
from crossmatch.models.stored import offline  # noqa: E402

LIMIT = 1e-5
CONFIG: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
OTHER = CONFIG | {"vision_cfg": CONFIG["vision_cfg"] | {"width": 48}}
TEXTS = ["a red cup", "", "two dogs on a sofa, and a cat under it", "word " * 90, "a red cup"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only wait for one another."""
    with threads(1):
        yield


@pytest.fixture(scope="module")
def library(open_clip: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """open_clip with two tiny architectures more; then as before."""
    from open_clip import factory

    before = list(factory._MODEL_CONFIG_PATHS), dict(factory._MODEL_CONFIGS)
    folder = tmp_path_factory.mktemp("configs")
    configs = {"tiny": CONFIG, "tiny-quickgelu": CONFIG | {"quick_gelu": True}, "tiny-wide": OTHER}
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    yield open_clip
    factory._MODEL_CONFIG_PATHS[:], factory._MODEL_CONFIGS = before


def made(library: Any, name: str = "tiny", seed: int = 0) -> Any:
    """A random network, spread enough that the two activations differ."""
    torch.manual_seed(seed)
    with offline():
        net = library.create_model(name).eval()
    with torch.no_grad():
        for values in net.parameters():
            values.add_(0.1 * torch.randn_like(values))
    return net


@pytest.fixture(scope="module")
def net(library: Any) -> Any:
    return made(library)


@pytest.fixture(scope="module")
def quick(library: Any) -> Any:
    return made(library, "tiny-quickgelu")


def pictures() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    sizes = [(40, 60), (32, 32), (91, 33), (20, 24), (64, 48)]
    found = [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]
    return [*found, found[0].convert("L"), found[2].convert("RGBA"), found[4].convert("CMYK")]


def own(library: Any, net: Any, images: list[Image.Image], texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """What the library itself makes of them, one by one."""
    transform = library.image_transform(net.visual.image_size, is_train=False)
    tokens = library.get_tokenizer("tiny")
    with torch.no_grad():
        seen = [net.encode_image(transform(image)[None], normalize=True)[0].numpy() for image in images]
        said = [net.encode_text(tokens([text]), normalize=True)[0].numpy() for text in texts]
    return np.stack(seen), np.stack(said)


def save(path: Path, net: Any, **more: Any) -> Path:
    torch.save({"epoch": 3, "name": "run", "state_dict": net.state_dict(), **more}, path)
    return path


# -- equal to the library


def test_a_saved_checkpoint_embeds_as_the_library_itself(library: Any, net: Any, tmp_path: Path) -> None:
    model = open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    images = pictures()
    seen, said = own(library, net, images, TEXTS)
    assert np.abs(model.embed_images(images) - seen).max() < LIMIT
    assert np.abs(model.embed_texts(TEXTS) - said).max() < LIMIT
    assert model.embed_images(images).dtype == np.float32
    assert model.similarity == "cosine"
    assert np.abs(np.linalg.norm(model.embed_texts(TEXTS), axis=1) - 1).max() < LIMIT


def test_the_two_activations_differ_by_far_more_than_rounding(library: Any, net: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", net)
    one, other = (open_clip_model(f"tiny,{path},{how}") for how in ("gelu", "quickgelu"))
    assert np.abs(one.embed_texts(TEXTS) - other.embed_texts(TEXTS)).max() > 100 * LIMIT
    assert np.abs(one.embed_images(pictures()) - other.embed_images(pictures())).max() > 100 * LIMIT
    assert one.signature != other.signature


def test_quickgelu_is_the_librarys_quickgelu(library: Any, quick: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", quick)
    images = pictures()
    seen, said = own(library, quick, images, TEXTS)
    for name in (f"tiny,{path},quickgelu", f"tiny-quickgelu,{path}"):
        model = open_clip_model(name)
        assert np.abs(model.embed_images(images) - seen).max() < LIMIT
        assert np.abs(model.embed_texts(TEXTS) - said).max() < LIMIT


def test_batch_size_order_and_company_do_not_matter(
    net: Any, library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    images, order = pictures(), np.array([6, 2, 0, 7, 1, 5, 3, 4])
    whole, texts = model.embed_images(images), model.embed_texts(TEXTS)
    shuffled = model.embed_images([images[n] for n in order])
    assert np.abs(shuffled - whole[order]).max() < LIMIT
    monkeypatch.setattr(adapter, "BATCH", 3)
    assert np.abs(model.embed_images(images) - whole).max() < LIMIT
    assert np.abs(model.embed_texts(TEXTS[::-1]) - texts[::-1]).max() < LIMIT
    assert np.abs(np.concatenate([model.embed_texts([text]) for text in TEXTS]) - texts).max() < LIMIT


def test_prepared_images_are_the_same_images(net: Any, library: Any, tmp_path: Path) -> None:
    model = open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    prepared = model.prepare_images(pictures())
    assert prepared.shape == (8, 3, 32, 32)
    assert np.array_equal(model.embed_prepared(prepared), model.embed_images(pictures()))


def test_nothing_gives_nothing(net: Any, library: Any, tmp_path: Path) -> None:
    model = open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    assert model.embed_images([]).shape == model.embed_texts([]).shape == (0, 16)
    assert model.truncated([]).shape == (0,)


def test_texts_are_truncated_from_the_76th_token_on(net: Any, library: Any, tmp_path: Path) -> None:
    model = open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    assert model.longest == 77
    texts = ["dog " * n for n in (1, 74, 75, 76, 200)] + [""]  # with beginning and end, 75 words fill 77 places
    assert model.truncated(texts).tolist() == [False, False, False, True, True, False]
    vectors = model.embed_texts(["dog " * 75, "dog " * 76, "dog " * 200])
    assert np.abs(vectors[0] - vectors[2]).max() < LIMIT


# -- files as they come


@pytest.mark.parametrize("inside", ["state_dict", "model_state_dict", None])
@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod."])
def test_wrapped_and_nested_checkpoints(library: Any, net: Any, tmp_path: Path, inside: str | None, prefix: str) -> None:
    weights = {prefix + name: values for name, values in net.state_dict().items()}
    optimiser = torch.optim.AdamW(net.parameters()).state_dict()
    args = argparse.Namespace(model="tiny", lr=1e-6)
    held = {"epoch": np.int64(4), "args": args, "optimizer": optimiser, inside: weights} if inside else weights
    torch.save(held, tmp_path / "a.pt")
    model = open_clip_model(f"tiny,{tmp_path / 'a.pt'},gelu")
    assert all(torch.equal(values, model.net.state_dict()[name]) for name, values in net.state_dict().items())


def test_half_precision_and_safetensors(net: Any, library: Any, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: values.clone().half() for name, values in net.state_dict().items()}, tmp_path / "a.safetensors")
    model = open_clip_model(f"tiny,{tmp_path / 'a.safetensors'},gelu")
    assert {values.dtype for values in model.net.state_dict().values()} == {torch.float32}
    assert (
        np.abs(model.embed_texts(TEXTS) - open_clip_model(f"tiny,{save(tmp_path / 'b.pt', net)},gelu").embed_texts(TEXTS)).max()
        < 1e-2
    )


def test_another_architecture_is_refused_by_name(library: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "wide.pt", made(library, "tiny-wide"))
    with pytest.raises(
        CrossmatchError,
        match=r"wide\.pt does not fit tiny: .*another shape.* Its sizes are those of tiny-wide.*open_clip:tiny-wide,FILE",
    ):
        open_clip_model(f"tiny,{path},gelu")


def test_weights_for_another_picture_size_are_not_stretched(library: Any, net: Any, tmp_path: Path) -> None:
    weights = dict(net.state_dict())
    weights["visual.positional_embedding"] = torch.randn(37, 32)  # of 48 pixels
    torch.save(weights, tmp_path / "large.pt")
    with pytest.raises(CrossmatchError, match="does not fit tiny: 1 weights have another shape"):
        open_clip_model(f"tiny,{tmp_path / 'large.pt'},gelu")


def test_missing_and_strange_weights_are_refused(library: Any, net: Any, tmp_path: Path) -> None:
    weights = dict(net.state_dict())
    weights["extra"] = weights.pop("ln_final.bias")
    torch.save(weights, tmp_path / "a.pt")
    with pytest.raises(
        CrossmatchError, match=r"1 weights are missing \(first 'ln_final.bias'\), 1 are not known \(first 'extra'\)"
    ):
        open_clip_model(f"tiny,{tmp_path / 'a.pt'},gelu")


def test_nan_weights_are_refused(library: Any, net: Any, tmp_path: Path) -> None:
    weights = {name: values.clone() for name, values in net.state_dict().items()}
    weights["visual.proj"][3, 1] = float("nan")
    torch.save(weights, tmp_path / "a.pt")
    with pytest.raises(CrossmatchError, match=r"a\.pt: 1 of the 512 numbers in 'visual\.proj' are NaN"):
        open_clip_model(f"tiny,{tmp_path / 'a.pt'},gelu")


def test_damaged_and_foreign_files(library: Any, net: Any, tmp_path: Path) -> None:
    whole = save(tmp_path / "a.pt", net).read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "page.pt").write_bytes(b"<html>not found</html>")
    for name in ("half.pt", "page.pt"):
        with pytest.raises(CrossmatchError, match=rf"{name} cannot be read as a checkpoint .* get it again"):
            open_clip_model(f"tiny,{tmp_path / name},gelu")
    torch.save({"a": [1, 2]}, tmp_path / "list.pt")
    with pytest.raises(CrossmatchError, match="holds no weights by name"):
        open_clip_model(f"tiny,{tmp_path / 'list.pt'},gelu")
    torch.save({"state_dict": net.state_dict(), "hook": Path("a")}, tmp_path / "objects.pt")
    with pytest.raises(CrossmatchError, match="holds Python objects beside its weights"):
        open_clip_model(f"tiny,{tmp_path / 'objects.pt'},gelu")


def test_wrong_words(library: Any, tmp_path: Path) -> None:
    with pytest.raises(WrongWords, match="neither a file nor one of open_clip's weights for tiny"):
        open_clip_model(f"tiny,{tmp_path / 'none.pt'},gelu")
    with pytest.raises(WrongWords, match=r"no architecture 'tinny'.*Nearest: tiny"):
        open_clip_model("tinny,openai")
    for rest in ("", "ViT-B-32", "ViT-B-32,", ",openai"):
        with pytest.raises(WrongWords, match="needs an architecture and its weights"):
            open_clip_model(rest)
    with pytest.raises(WrongWords, match="Leave one out"):
        parsed("ViT-B-32-quickgelu,a.pt,gelu")


def test_the_library_may_be_absent_or_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(name: str) -> object:
        raise RuntimeError("operator torchvision::nms does not exist")

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "open_clip", None)
        with pytest.raises(MissingDependency, match=r"crossmatch\[clip\]"):
            open_clip_model("ViT-B-32,openai")
    monkeypatch.setattr("crossmatch.models.stored.importlib.import_module", unfit)
    with pytest.raises(CrossmatchError, match=r"open_clip cannot be imported .*Install the torchvision that was built for torch"):
        open_clip_model("ViT-B-32,openai")


# -- offline


def test_a_tag_that_was_never_fetched_says_how(library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        CrossmatchError,
        match=r"open_clip:ViT-B-32,openai are not on this machine.*hf download timm/vit_base_patch32_clip_224.openai",
    ):
        open_clip_model("ViT-B-32,openai")
    with pytest.raises(CrossmatchError, match=r"open_clip_config\.json and its weights cannot be found.*hf download org/name"):
        open_clip_model("hf-hub:org/name")


def cache(home: Path, repository: str, **files: bytes) -> None:
    """A repository in the cache of Hugging Face, as a download leaves it."""
    there = home / f"models--{repository.replace('/', '--')}"
    snapshot = there / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("0" * 40)
    for name, content in files.items():
        (snapshot / name).write_bytes(content)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def described(quick: bool | None, **preprocessing: Any) -> bytes:
    config = CONFIG if quick is None else CONFIG | {"quick_gelu": quick}
    return json.dumps({"model_cfg": config, "preprocess_cfg": preprocessing}).encode()


def test_a_cached_repository_and_a_folder_are_the_same_model(library: Any, quick: Any, hub: Path, tmp_path: Path) -> None:
    weights = save(tmp_path / "w.bin", quick).read_bytes()
    told = described(True, mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25], interpolation="bilinear", resize_mode="squash")
    cache(hub, "org/name", **{"open_clip_config.json": told, "open_clip_pytorch_model.bin": weights})
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "open_clip_config.json").write_bytes(told)
    (folder / "weights.pth").write_bytes(weights)
    one, other = open_clip_model("hf-hub:org/name"), open_clip_model(f"local-dir:{folder}")
    transform = library.image_transform(
        32, is_train=False, mean=(0.5,) * 3, std=(0.25,) * 3, interpolation="bilinear", resize_mode="squash"
    )
    with torch.no_grad():
        seen = quick.encode_image(torch.stack([transform(image) for image in pictures()]), normalize=True).numpy()
    for model in (one, other):
        assert np.abs(model.embed_images(pictures()) - seen).max() < LIMIT
        assert np.abs(model.embed_texts(TEXTS) - own(library, quick, pictures()[:1], TEXTS)[1]).max() < LIMIT
        assert model.notes == ()
    assert one.signature.partition("|")[2] == other.signature.partition("|")[2]
    assert "pixels:32x32/squash/bilinear" in one.signature or "pixels:32/squash/bilinear" in one.signature
    told_plain = open_clip_model(f"local-dir:{folder},gelu")
    assert told_plain.notes == ("activation GELU as asked for, though its open_clip_config.json says so, which means QuickGELU",)


def test_a_folder_without_its_parts(library: Any, tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=r"open_clip_config\.json and its weights cannot be found"):
        open_clip_model(f"local-dir:{tmp_path}")
    (tmp_path / "open_clip_config.json").write_text("[]")
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(CrossmatchError, match="has no model_cfg"):
        open_clip_model(f"local-dir:{tmp_path}")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"model_cfg": []}, "model_cfg must be a table"),
        ({"model_cfg": CONFIG, "preprocess_cfg": "squash"}, "preprocess_cfg must be a table"),
        ({"model_cfg": {"vision_cfg": {}}}, "embed_dim of model_cfg must be a whole number above 0, not absent"),
        ({"model_cfg": CONFIG | {"embed_dim": "64"}}, "embed_dim of model_cfg must be a whole number above 0, not '64'"),
        ({"model_cfg": CONFIG | {"quick_gelu": "no"}}, "quick_gelu of model_cfg must be true or false"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"std": [0, 0, 0]}}, "std of preprocess_cfg must be three numbers above 0"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0, 0, 10**400]}}, "mean of preprocess_cfg must be three numbers"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0.5]}}, "mean of preprocess_cfg must be three numbers"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"mean": ["0", "0", "0"]}}, "mean of preprocess_cfg must be three numbers"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"resize_mode": []}}, "resize_mode of preprocess_cfg must be one of shortest"),
        ({"model_cfg": CONFIG, "preprocess_cfg": {"fill_color": -1}}, "fill_color of preprocess_cfg must be a whole number"),
    ],
)
def test_a_description_with_odd_values_is_refused_by_name(
    library: Any, quick: Any, tmp_path: Path, told: dict[str, Any], said: str
) -> None:
    (tmp_path / "open_clip_config.json").write_text(json.dumps(told))
    save(tmp_path / "a.bin", quick)
    with pytest.raises(CrossmatchError, match=said):
        open_clip_model(f"local-dir:{tmp_path}")


def test_a_tag_with_quickgelu_is_corrected_and_said(
    library: Any, quick: Any, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for ViT-B-32,openai, where open_clip itself only warns and takes GELU."""
    from open_clip import pretrained

    told = pretrained._pcfg(hf_hub="org/tiny/", quick_gelu=True)
    plain = pretrained._pcfg(hf_hub="org/tiny/")
    monkeypatch.setitem(pretrained._PRETRAINED, "tiny", {"first": told, "second": plain})
    cache(hub, "org/tiny", **{"open_clip_pytorch_model.bin": save(tmp_path / "w.bin", quick).read_bytes()})
    model = open_clip_model("tiny,first")
    assert model.notes == model.notes_on(None) == ("activation QuickGELU: the released weights 'first'",)
    seen, said = own(library, quick, pictures(), TEXTS)
    assert np.abs(model.embed_images(pictures()) - seen).max() < LIMIT
    assert np.abs(model.embed_texts(TEXTS) - said).max() < LIMIT
    assert open_clip_model("tiny-quickgelu,first").notes == ()
    assert open_clip_model("tiny,second").notes == ()
    with pytest.raises(CrossmatchError, match=r"trained with QuickGELU \(the released weights 'first'\), but GELU is asked for"):
        open_clip_model("tiny,first,gelu")
    with pytest.raises(CrossmatchError, match="trained with GELU"):
        open_clip_model("tiny-quickgelu,second")


def test_building_leaves_no_trace(library: Any, net: Any, tmp_path: Path) -> None:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, logging.root.manager.disable, list(logging.root.handlers)
    open_clip_model(f"tiny,{save(tmp_path / 'a.pt', net)},gelu")
    assert (constants.HF_HUB_OFFLINE, logging.root.manager.disable, list(logging.root.handlers)) == before


# -- the activation


def test_a_local_file_of_unknown_activation_is_refused_with_both_spellings(library: Any, net: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "finetuned.pt", net)
    with pytest.raises(WrongWords, match=r"does not say with which activation.*,quickgelu\..*,gelu$"):
        open_clip_model(f"tiny,{path}")


@pytest.mark.parametrize(
    "name", ["negclip.pth", "negCLIP.pt", "GNM_epoch3.pt", "best_CLIP_COCO_9.pt", "best_CLIP_TROHN-Text_9.pt", "clip_trohn-img.pt"]
)
def test_fine_tuned_openai_checkpoints_are_known_by_name(library: Any, quick: Any, tmp_path: Path, name: str) -> None:
    path = save(tmp_path / name, quick)
    model = open_clip_model(f"tiny,{path}")
    assert "|quickgelu|" in model.signature
    assert f"activation QuickGELU: {name} is" in model.notes[0]
    assert open_clip_model(f"tiny,{path},gelu").notes[0].startswith("activation GELU as asked for, though")


def test_a_torchscript_archive_is_openais(library: Any, quick: Any, tmp_path: Path) -> None:
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
        warnings.simplefilter("ignore")  # TorchScript is old, and so are the files
        torch.jit.trace(Shell(), torch.zeros(1)).save(str(tmp_path / "model.pt"))
    model = open_clip_model(f"tiny,{tmp_path / 'model.pt'}")
    assert model.notes == ("activation QuickGELU: model.pt is a TorchScript archive, as OpenAI released them",)
    seen, _ = own(library, quick, pictures(), TEXTS)
    assert np.abs(model.embed_images(pictures()) - seen).max() < LIMIT
    with pytest.raises(CrossmatchError, match="trained with QuickGELU"):
        open_clip_model(f"tiny,{tmp_path / 'model.pt'},gelu")


def test_openai_weights_of_the_real_table_have_quickgelu(library: Any) -> None:
    assert adapter._table("ViT-B-32")["openai"]["quick_gelu"] is True
    assert not adapter._table("ViT-B-32")["laion2b_s34b_b79k"].get("quick_gelu")


def test_an_architecture_without_a_twin_is_taken_for_plain_but_not_surely(library: Any, tmp_path: Path) -> None:
    net = made(library, "tiny-wide")
    path = save(tmp_path / "a.pt", net)
    assert open_clip_model(f"tiny-wide,{path}").notes == ()
    forced = open_clip_model(f"tiny-wide,{path},quickgelu")
    assert forced.notes == ("activation QuickGELU as asked for, though open_clip has tiny-wide with no other, which means GELU",)
    with offline():
        own = library.create_model("tiny-wide", force_quick_gelu=True).eval()
    own.load_state_dict(net.state_dict())
    with torch.no_grad():
        said = own.encode_text(library.get_tokenizer("tiny")(TEXTS), normalize=True).numpy()
    assert np.abs(forced.embed_texts(TEXTS) - said).max() < LIMIT
    told = save(tmp_path / "b.pt", net, args={"model": "tiny-wide", "force_quick_gelu": True})
    model = open_clip_model(f"tiny-wide,{told}")
    assert model.notes == ("activation QuickGELU: the training's arguments in b.pt say so",)
    assert np.abs(model.embed_texts(TEXTS) - said).max() < LIMIT
    with pytest.raises(CrossmatchError, match="but GELU is asked for"):
        open_clip_model(f"tiny-wide,{told},gelu")


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """A folder of this name, described as GELU or as QuickGELU, with these weights."""

    def make(name: str, quick: bool | None, net: Any, **more: Any) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "open_clip_config.json").write_bytes(described(quick))
        save(tmp_path / name / "open_clip_pytorch_model.bin", net, **more)
        return tmp_path / name

    return make


def test_a_description_against_its_weights(library: Any, quick: Any, folder: Any) -> None:
    """The arguments of the training are sure of QuickGELU: what the folder says is corrected, and that is said."""
    path = folder("a", None, quick, args={"model": "ViT-B-32", "force_quick_gelu": True})
    model = open_clip_model(f"local-dir:{path}")
    assert model.notes == (
        "activation QuickGELU: the training's arguments in open_clip_pytorch_model.bin say so; its description means GELU",
    )
    assert np.abs(model.embed_texts(TEXTS) - own(library, quick, pictures()[:1], TEXTS)[1]).max() < LIMIT
    with pytest.raises(CrossmatchError, match="but GELU is asked for"):
        open_clip_model(f"local-dir:{path},gelu")
    same = folder("b", True, quick, args={"model": "ViT-B-32", "force_quick_gelu": True})
    assert open_clip_model(f"local-dir:{same}").notes == ()
    with pytest.raises(CrossmatchError, match="but GELU is asked for"):
        open_clip_model(f"local-dir:{same},gelu")


def test_a_description_against_a_clue_that_is_not_sure(library: Any, quick: Any, folder: Any, hub: Path) -> None:
    """By the folder's or the repository's name, or by what the training began with: the user is asked."""
    began = folder("a", None, quick, args={"model": "ViT-B-32", "pretrained": "openai"})
    named = folder("negclip", None, quick)
    plain = folder("c", True, quick, args={"model": "ViT-B-32", "pretrained": ""})
    parts = {path.name: path.read_bytes() for path in named.iterdir()}
    cache(hub, "org/negclip", **parts)
    for name in (f"local-dir:{began}", f"local-dir:{named}", f"local-dir:{plain}", "hf-hub:org/negclip"):
        with pytest.raises(WrongWords, match=r"says so\), but .* Say which: open_clip:.*,quickgelu or open_clip:.*,gelu$"):
            open_clip_model(name)
        for how in ("gelu", "quickgelu"):
            model = open_clip_model(f"{name},{how}")
            assert f"|{how}|" in model.signature
            assert "as asked for, though" in model.notes[0]


def test_a_repository_that_the_table_of_releases_names(library: Any, quick: Any, hub: Path, tmp_path: Path) -> None:
    weights = save(tmp_path / "w.bin", quick).read_bytes()
    released = {"open_clip_config.json": described(None), "open_clip_pytorch_model.bin": weights}
    cache(hub, "timm/vit_base_patch32_clip_224.openai", **released)
    model = open_clip_model("hf-hub:timm/vit_base_patch32_clip_224.openai")
    assert model.notes[0].startswith("activation QuickGELU: the released weights 'ViT-B-32")
    assert "|quickgelu|" in model.signature


def test_architectures_with_quickgelu_that_do_not_say_so_are_known(library: Any) -> None:
    """Their rows in the table of releases are silent about it as well."""
    own = [name for name in library.list_models() if library.get_model_config(name).get("quick_gelu")]
    assert sorted(name for name in own if not name.endswith("-quickgelu")) == sorted(UNSAID)
    assert all(row["quick_gelu"] for name in UNSAID for row in adapter._table(name).values())


# -- the signature


def test_the_signature_changes_with_weights_activation_and_preprocessing(library: Any, net: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", net)
    first = open_clip_model(f"tiny,{path},gelu").signature
    assert first.startswith("open_clip:tiny,a.pt|open_clip:")
    assert first.endswith("|tokens:77|fp32")
    assert open_clip_model(f"tiny,{path},gelu").signature == first
    (tmp_path / "b").mkdir()
    other = save(tmp_path / "b" / "a.pt", made(library, seed=1))
    assert open_clip_model(f"tiny,{other},gelu").signature != first
