"""The embedded world is a benchmark: its scenes and captions may not change without a changelog entry under "Scores"."""

from crossmatch.benchmarks import list_benchmarks
from crossmatch.data.loaded_data import data_hash
from crossmatch.diorama.world import Diorama


def test_world_is_the_same_on_every_machine():
    assert Diorama.make("test", images=200).digest() == "007d1261b1c392d1"


def test_larger_split_has_the_same_start():
    assert Diorama.make("val", images=5).captions == Diorama.make("val", images=9).captions[:25]


def test_the_default_test_split():
    data = list_benchmarks()["diorama/retrieval"].load()
    assert data.collection.shape == (1000, 5000)
    assert data_hash(data) == "e0308916"
    links, truth = data.judgements["links"], data.judgements["truth"]
    assert links.positive_count == 5000
    assert truth.complete
    assert set(zip(links.rows, links.columns, strict=True)) <= set(zip(truth.rows, truth.columns, strict=True))
    assert links.positive_count / truth.positive_count < 0.1  # the original links miss most true pairs
