"""Scene graphs of captions with expected graphs, and laws that every graph obeys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.text.scene_graph import MAX_WORDS, SceneGraph, scene_graph, scene_graphs

# caption | objects | object.attribute | object:relation:object (several words: with _)
TABLE = """
two dogs | dog | dog.two |
a tall thin man | man | man.tall man.thin |
very tall buildings | building | building.tall |
larger dogs | dog | dog.large |
two parked cars | car | car.park car.two |
a sleeping dog | dog | dog.sleep |
a snow covered hill | hill | hill.snow hill.cover |
red and white and blue flags | flag | flag.red flag.white flag.blue |
a clock tower | tower | tower.clock |
three brown dogs and a black cat | dog cat | dog.brown dog.three cat.black |
2 zebras grazing | zebra | zebra.2 zebra.graze |
a young girl standing on top of a tennis court | girl court | girl.young girl.stand court.tennis | girl:on_top_of:court
a bird on a branch in a tree | bird branch tree | | bird:on:branch branch:in:tree
a boat in the middle of the lake | boat lake | | boat:in_middle_of:lake
people standing on one side of a road | person road | person.stand | person:on_side_of:road
a couch in front of a tv | couch tv | | couch:in_front_of:tv
a bus driving down a road next to a park | bus road park | bus.drive | bus:down:road bus:next_to:park
a man in black | man black | | man:in:black
a group of people standing around a table | person table | person.group person.stand | person:around:table
a couple of dogs run on the beach | dog beach | dog.couple dog.run | dog:on:beach
a bunch of green bananas | banana | banana.bunch banana.green |
some of the dogs are sleeping | dog | dog.sleep |
one of the men is smiling | man | man.smile |
a bowl of fruit sits on the table | bowl fruit table | bowl.sit | bowl:of:fruit bowl:on:table
a man rides a wave | man wave | | man:ride:wave
a man riding a wave on a surfboard | man wave surfboard | | man:ride:wave man:on:surfboard
a man has been cutting a tree | man tree | | man:cut:tree
a child blowing out candles | child candle | | child:blow_out:candle
a man trying to catch a ball | man ball | man.try | man:catch:ball
a man gives a dog a bone | man dog bone | | man:give:dog man:give:bone
children play | child | child.play |
a dog runs and jumps over a fence | dog fence | dog.run dog.jump | dog:over:fence
a man riding a horse and holding a flag | man horse flag | | man:ride:horse man:hold:flag
a man jumping over a fence while holding a ball | man fence ball | man.jump | man:over:fence man:hold:ball
a man and a woman are walking two dogs | man woman dog | dog.two | man:walk:dog woman:walk:dog
a woman holding a baby and a bag | woman baby bag | | woman:hold:baby woman:hold:bag
a man sits on a bench and a dog sleeps | man bench dog | man.sit dog.sleep | man:on:bench
a man on a bench and a dog on the grass | man bench dog grass | | man:on:bench dog:on:grass
a man woman and child walking | man woman child | man.walk woman.walk child.walk |
carrots broccoli and rice on a plate | carrot broccoli rice plate | | carrot:on:plate broccoli:on:plate rice:on:plate
a plate of beans eggs and toast | plate bean egg toast | | plate:of:bean plate:of:egg plate:of:toast
the ball is red | ball | ball.red |
the ball is big and red | ball | ball.big ball.red |
a girl looks happy | girl | girl.look girl.happy |
a man is a doctor | man doctor | man.doctor |
there is a cat on the bed | cat bed | | cat:on:bed
a bus that is red | bus | bus.red |
a man who is wearing a hat | man hat | | man:wear:hat
the man whose hat is black | man hat | hat.black | man:have:hat
a boy who is riding a bike is smiling | boy bike | boy.smile | boy:ride:bike
a pizza eaten by a man | pizza man | | man:eat:pizza
a pizza is eaten by a dog and a cat | pizza dog cat | | dog:eat:pizza cat:eat:pizza
a big tower that is surrounded by trees | tower tree | tower.big | tree:surround:tower
a car parked by a fence | car fence | car.park | car:by:fence
a sign covered in snow | sign snow | sign.cover | sign:in:snow
a street lined with trees | street tree | street.line | street:with:tree
a man dressed as a clown | man clown | man.dress | man:as:clown
a man in a red shirt riding a bike | man shirt bike | shirt.red | man:in:shirt man:ride:bike
a room with people sitting on chairs | room person chair | person.sit | room:with:person person:on:chair
the woman wearing skis and a helmet is standing | woman ski helmet | woman.stand | woman:wear:ski woman:wear:helmet
a boy 's red shirt | boy shirt | shirt.red | boy:have:shirt
a woman brushing her hair | woman hair | | woman:have:hair woman:brush:hair
a dog chasing its tail | dog tail | | dog:have:tail dog:chase:tail
a child smiles as a woman looks at him | child woman | child.smile woman.look | woman:at:child
a man holds out a wire basket as he prepares to fill it | man basket | basket.wire man.prepare | man:hold_out:basket man:fill:basket
a mom is helping her child brush his teeth | mom child tooth | | mom:have:child mom:help:child child:have:tooth child:brush:tooth
two men facing each other | man | man.two man.face |
she is holding an umbrella | umbrella | |
riding a wave | wave | |
sitting down | | |
"""


def rows() -> list[tuple[str, SceneGraph]]:
    parsed = []
    for line in TABLE.strip().splitlines():
        caption, objects, attributes, relations = (cell.split() for cell in f"{line} ".split(" |"))
        graph = SceneGraph(
            tuple(objects),
            tuple(tuple(pair.split(".")) for pair in attributes),  # type: ignore[misc]
            tuple(tuple(part.replace("_", " ") for part in triple.split(":")) for triple in relations),  # type: ignore[misc]
        )
        parsed.append((" ".join(caption), graph))
    return parsed


@pytest.mark.parametrize(("caption", "graph"), rows(), ids=[caption for caption, _ in rows()])
def test_graph_equals_the_expected_one(caption: str, graph: SceneGraph) -> None:
    parsed = scene_graph(caption.split())
    assert tuple(map(set, parsed)) == tuple(map(set, graph))


WORDS = """
a the his her its whose two dog dogs man woman people group lot front top of on in to with by and or is are was riding rides ridden
eaten running red big very not that who while as there each other 's 2 it him they 🐶 zzz -lrb-
"""
texts = st.lists(st.sampled_from(WORDS.split()), max_size=14)


@given(st.lists(texts, max_size=4))
def test_every_graph_is_consistent(captions: list[list[str]]) -> None:
    """Any order of words can be parsed; tuples are unique and refer to objects; captions are independent."""
    before = [list(caption) for caption in captions]
    graphs = scene_graphs(captions)
    assert captions == before
    for caption, graph in zip(captions, graphs, strict=True):
        assert graph == scene_graph(caption)
        assert len(set(graph.tuples)) == len(graph.tuples)
        assert {name for name, _ in graph.attributes} <= set(graph.objects)
        assert {name for first, _, second in graph.relations for name in (first, second)} <= set(graph.objects)
        assert all(part for parts in graph.tuples for part in parts)


def test_empty_text_gives_an_empty_graph() -> None:
    assert scene_graphs([]) == []
    assert scene_graph([]) == SceneGraph()
    assert scene_graph(["🐶", "…"]) == SceneGraph()


def test_long_text_is_parsed_in_pieces() -> None:
    piece = ["a", "man", "rides", "a", "wave", *["and"] * (MAX_WORDS - 5)]
    assert scene_graph(piece * 50) == scene_graph(piece)
    assert scene_graph([*piece, "two", "cats"]).objects == ("man", "wave", "cat")
