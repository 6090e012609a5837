"""The three captioners, small, with images and texts for them."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest

CAPTIONERS = {  # the module, the class, its sizes
    "show-tell": ("show_tell", "ShowTell", {}),
    "show-att-tell": ("show_att_tell", "ShowAttTell", {"attention": 5}),
    "up-down": ("up_down", "UpDown", {"attention": 5}),
    "up-down, as first published": ("up_down", "UpDown", {"attention": 5, "reads": "attention"}),
}


@pytest.fixture
def captioner():
    """Small captioners by name, and regions and texts at random."""
    torch = pytest.importorskip("torch")
    from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, PAD, Regions, Words

    torch.manual_seed(7)

    def net(name="up-down", words=12, **sizes):
        module, made, own = CAPTIONERS[name]
        home = import_module(f"crossmatch.models.zoo.{module}")
        config = getattr(home, f"{made}Config")
        given = {"features": 6, "dimensions": 8, "word_dimensions": 7, **own, **sizes}
        found = getattr(home, made)(config(words=words, **given)).eval()
        with torch.no_grad():  # as if trained: words differ in how likely they are
            found.next_word.linear.weight.mul_(20)
        return found

    def regions(*sizes, most=None, features=6):
        most = max(sizes) if most is None else most
        real = torch.arange(most) < torch.tensor(sizes).unsqueeze(1)
        return Regions(torch.randn(len(sizes), most, features) * real.unsqueeze(2), real, torch.zeros(len(sizes), most, 4))

    def texts(*lengths, words=12):
        out = torch.full((len(lengths), max(lengths) + 2), PAD)
        for row, length in zip(out, lengths, strict=True):
            row[: length + 2] = torch.tensor([BEGIN, *torch.randint(FIRST_WORD, words, (length,)).tolist(), END])
        return Words(out)

    return SimpleNamespace(net=net, regions=regions, texts=texts)


@pytest.fixture(params=CAPTIONERS)
def family(request):
    """Each captioner's name."""
    return request.param
