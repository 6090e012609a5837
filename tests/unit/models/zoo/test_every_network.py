"""Properties that every matching network has: independence of padding and batch, gradients, learning, checked sizes."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
from crossmatch.data.errors import UsageError
from crossmatch.models.zoo_families import zoo_families
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import InfoNCEOptions, TripletOptions, VSRNOptions
from crossmatch.train.objectives.info_nce import contrastive
from crossmatch.train.objectives.triplet import triplet
from crossmatch.train.objectives.vsrn import vsrn
from zoo_inputs import (
    FEATURES,
    WORDS,
    image_alone,
    names_without_gradient,
    naming_task,
    random_regions,
    random_words,
    share_of_correct_first_texts,
    train,
    with_more_padding,
)

CLIP_SIZES = {"image_width": 16, "image_heads": 4, "text_width": 8, "text_heads": 2, "image_layers": 2, "text_layers": 2}
SMALL = {"dimensions": 16, "word_dimensions": 8}
NETWORKS = {  # family and sizes
    "vse": ("vse", SMALL),
    "vse, recurrent": ("vse", SMALL | {"image": "bigru", "text": "bigru"}),
    "vse-infinity": ("vse-infinity", SMALL),
    "vsrn": ("vsrn", SMALL | {"layers": 2, "decoder": 12}),
    "clip": ("clip", CLIP_SIZES | {"dimensions": 12}),
    "scan, t2i": ("scan", SMALL | {"direction": "t2i"}),
    "scan, i2t": ("scan", SMALL | {"direction": "i2t", "aggregation": "lse"}),
    "sgr": ("sgraf", SMALL | {"module": "sgr", "similarity_dimensions": 16}),
    "saf": ("sgraf", SMALL | {"module": "saf", "similarity_dimensions": 16}),
    "pvse, 1": ("pvse", SMALL | {"embeddings": 1}),
    "pvse, 2": ("pvse", SMALL | {"embeddings": 2}),
    "pcme, means": ("pcme", SMALL | {"retrieval": "means"}),
    "pcme, probability": ("pcme", SMALL | {"retrieval": "probability", "log_sigma": -1.0}),
}


def build(name, **sizes):
    family, own_sizes = NETWORKS[name]
    return zoo_families()[family].build({"features": FEATURES, "words": WORDS, **own_sizes, **sizes})


@torch.no_grad()
def build_as_trained(name):
    """A network whose biases and normalisations differ from their initial values, so that each has an effect."""
    net = build(name).eval()
    for parameter_name, parameter in net.named_parameters():
        if "bias" in parameter_name or "norm" in parameter_name:
            parameter.add_(torch.randn_like(parameter) * 0.3)
    for buffer_name, buffer in net.named_buffers():
        if "running" in buffer_name or "moments" in buffer_name:
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
    return net


@torch.no_grad()
@pytest.mark.parametrize("name", NETWORKS)
def test_scores_do_not_depend_on_padding_or_batch(name):
    net, regions, words = build_as_trained(name), random_regions(5, 1, 3, 0, most=9), random_words(2, 7, 4, 0)
    images, texts = net.images(regions), net.texts(words)
    scores = net.similarity(images, texts)
    assert torch.isfinite(scores).all()
    assert len(scores[:3].unique()) == scores[:3].numel()
    padded = net.similarity(net.images(with_more_padding(regions, 7.0)), texts)
    torch.testing.assert_close(padded, scores, atol=1e-5, rtol=0)
    for i in range(4):
        for t in range(4):
            alone = net.similarity(net.images(image_alone(regions, i)), net.texts(words[t : t + 1]))
            assert alone.item() == pytest.approx(scores[i, t].item(), abs=1e-5)
    if hasattr(net, "pair_similarity"):
        torch.testing.assert_close(net.pair_similarity(images, texts), scores.diagonal(), atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["vse", "vse, recurrent", "vse-infinity", "vsrn", "clip", "pvse, 1", "pvse, 2"])
def test_vectors_have_length_one(name):
    net = build(name).eval()
    for vectors in (net.images(random_regions(3, 1)), net.texts(random_words(2, 0, 4))):
        torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(vectors.shape[:-1]))


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("vse", partial(triplet, options=TripletOptions(negatives="sum"))),
        ("vse-infinity", partial(triplet, options=TripletOptions(negatives="sum"))),
        ("scan, t2i", partial(triplet, options=TripletOptions(negatives="sum"))),
        ("scan, i2t", partial(triplet, options=TripletOptions(negatives="sum"))),
        ("vsrn", partial(vsrn, options=VSRNOptions(negatives="sum"))),
        ("clip", partial(contrastive, options=InfoNCEOptions())),
    ],
)
def test_every_weight_has_a_gradient(name, objective):
    net = build(name).train()
    if name == "vsrn":  # the initial weight 0 of its batch norm would block the gradient
        for layer in net.reasoning:
            torch.nn.init.uniform_(layer.norm.weight, 0.5, 1.5)
    batch = TrainingBatch(random_regions(4, 5, 3, 2), random_words(3, 5, 4, 6), torch.arange(4))
    objective(net, batch, 1.0).backward()
    assert all(name.endswith("outer.bias") for name in names_without_gradient(net))  # a bias before a batch norm has none


@pytest.mark.parametrize(
    ("name", "sizes", "rate", "steps", "warm_up", "least"),
    [
        ("vse-infinity", {"dropped": 0.0}, 5e-3, 80, 0.3, 0.5),
        ("scan, t2i", {"dimensions": 32, "word_dimensions": 16}, 1e-2, 40, 0.5, 0.5),
        ("scan, i2t", {"dimensions": 32, "word_dimensions": 16, "aggregation": "mean"}, 1e-2, 40, 0.5, 0.5),
        ("sgr", {"dimensions": 24, "word_dimensions": 16, "dropout": 0.0}, 5e-3, 40, 0.625, 0.4),
        ("saf", {"dimensions": 24, "word_dimensions": 16, "dropout": 0.0}, 5e-3, 40, 0.625, 0.4),
    ],
)
def test_network_learns_which_words_name_which_regions(name, sizes, rate, steps, warm_up, least):
    batch = naming_task()
    net = train(build(name, **sizes), partial(triplet, options=TripletOptions(warm_up=warm_up)), batch, rate, steps)
    assert share_of_correct_first_texts(net, batch) >= least  # chance is 0.05


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("scan, t2i", {"direction": "both"}, 'direction = "both"; expected one of t2i, i2t'),
        ("scan, t2i", {"aggregation": "median"}, "expected one of mean, sum, max, lse"),
        ("scan, t2i", {"temperature": -1.0}, "temperature = -1.0; it must be at least 0"),
        ("scan, t2i", {"sharpness": 0.0}, "sharpness = 0.0; it must be above 0"),
        ("scan, t2i", {"leak": 1.0}, "leak = 1.0; it must be at least 0 and at most 0.99"),
        ("pcme, means", {"retrieval": "mean"}, 'retrieval = "mean"; expected one of means, probability'),
        ("clip", {"image_heads": 3}, "image_width = 16 and image_heads = 3; the former must be a multiple of the latter"),
        ("clip", {"text_heads": 5}, "text_width = 8 and text_heads = 5; the former must be a multiple of the latter"),
    ],
)
def test_wrong_sizes_are_rejected(name, sizes, message):
    with pytest.raises(UsageError, match=message):
        build(name, **sizes)
