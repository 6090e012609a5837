"""Published numbers: values, sources, and their separation from results."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result, ResultRow, load_results
from crossmatch.metrics.metric_table import metric
from crossmatch.report.published_results import (
    PublishedNumber,
    find_published_numbers,
    load_published_table,
    load_published_tables,
    published_rows,
    tables_with_published,
)
from crossmatch.report.tables import format_table

ROOT = Path(__file__).parents[3]
MODELS = {
    ("chun2022eccv", "Table 4"): 25, ("chun2022eccv", "Table D.2"): 25, ("chun2022eccv", "Table D.3"): 25,
    ("parekh2021cxc", "Table 2"): 5, ("parekh2021cxc", "Table 3"): 7, ("parekh2021cxc", "Table 4"): 7,
    ("parekh2021cxc", "Table 5"): 10,
    ("miranda2024bivlc", "Table 2"): 8, ("miranda2024bivlc", "Table 3"): 6, ("miranda2024bivlc", "Table 4"): 9,
    ("miranda2024bivlc", "Table 5"): 2, ("miranda2024bivlc", "sec. 5.3"): 2,
    ("hu2019bison", "Table 3"): 5, ("hu2019bison", "Table 4"): 7, ("hu2019bison", "sec. 6"): 4,
}  # fmt: skip


def row(part, name, value, **changes):
    values = {"part": part, "metric": name, "value": value, "low": value - 1, "high": value + 1, "chance": 0.1,
             "unit": metric(name).unit,
             "best": 100.0, "n": 10, "positives": 10, "ties": 0.0, "unjudged": None, "signature": f"{name}|{part}"}  # fmt: skip
    return ResultRow(**{**values, **changes})


def result(model="BLIP", task="coco-5k", options=None, rows=None):
    all_rows = rows or (row("i2t", "hit@1", 41.8), row("t2i", "hit@1", 31.3), row("t2i", "median-rank", 3.0))
    return Result(model, task, "system|x", options or {}, tuple(all_rows), {}, {}, 1000, 0, "expected")


def test_all_published_tables_load():
    assert {key: len(table.models) for key, table in load_published_tables().items()} == MODELS
    sizes = [len(table.numbers) for table in load_published_tables().values()]
    retrieval = [25 * 8, 25 * 11, 25 * 11, 5 * 8 + 4 * 8 - 2, 7 * 4, 7 * 4, 5 + 5 + 4 + 4]
    assert sizes == [*retrieval, 8 * 4, 6 * 8, 9 * 9, 2 * 3, 2, 5, 7, 4]


def test_published_numbers_are_in_the_range_of_their_metric():
    for table in load_published_tables().values():
        assert len({(n.model, n.task, n.key) for n in table.numbers}) == len(table.numbers)
        for n in table.numbers:
            m = metric(n.metric)
            assert re.fullmatch(r"\d+(\.\d+)?(±\d\.\d)?", n.printed)
            assert 0 < n.value <= {"%": 100, "rank": 5000}[m.unit] * (6 if n.metric == "rsum" else 1), n
            assert n.source == f"{table.paper}, {table.table}"


@pytest.mark.parametrize(
    ("paper", "table", "model", "key", "value"),
    [  # the corners of each table
        ("chun2022eccv", "Table 4", "VSE0", "eccv-caption:mean/map@r", 22.67),
        ("chun2022eccv", "Table 4", "PVSE K=1, Hardest NM", "coco-1k:rsum", 486.9),
        ("chun2022eccv", "Table D.2", "VSE0", "eccv-caption:i2t/map@r", 14.92),
        ("chun2022eccv", "Table D.2", "PVSE K=1, Hardest NM", "pmrp:i2t/zeta=0/pmrp@50", 45.36),
        ("chun2022eccv", "Table D.3", "VSE0", "eccv-caption:t2i/map@r", 30.41),
        ("chun2022eccv", "Table D.3", "PVSE K=1, Hardest NM", "pmrp:t2i/zeta=0/pmrp@50", 48.99),
        ("parekh2021cxc", "Table 2", "VSE++", "coco-5k:i2t/hit@1", 41.3),
        ("parekh2021cxc", "Table 2", "DE_T2T+I2T", "cxc:t2i/median-rank", 2),
        ("parekh2021cxc", "Table 3", "USE_mling-large", "cxc:t2t/hit@1", 31.2),
        ("parekh2021cxc", "Table 4", "SimCLRv2", "cxc:i2i/hit@10", 68.1),
        ("parekh2021cxc", "Table 5", "DE_T2T+I2T", "cxc-sits:bootstrap-spearman", 61.9),
        ("miranda2024bivlc", "Table 2", "Human", "sugarcrepe:accuracy", 98.93),
        ("miranda2024bivlc", "Table 2", "VQAScore-XXL", "bivlc:group", 76.47),
        ("miranda2024bivlc", "Table 3", "CLIP", "bivlc:ipos2t", 84.32),
        ("miranda2024bivlc", "Table 3", "CLIP_TROHN-Img", "bivlc:tneg2i", 90.15),
        ("miranda2024bivlc", "Table 4", "CLIP", "bivlc:replace/i2t", 82.09),
        ("miranda2024bivlc", "Table 4", "Open CapPa", "bivlc:add/group", 9.263),
        ("miranda2024bivlc", "Table 4", "VQAScore-XXL", "bivlc:add/group", 58.74),
        ("miranda2024bivlc", "Table 5", "CLIP_TROHN-Img/Det", "bivlc:group", 26.42),
        ("miranda2024bivlc", "sec. 5.3", "CLIP_Det", "sugarcrepe:accuracy", 74.59),
        ("hu2019bison", "Table 3", "SCAN t2i", "bison:accuracy", 85.89),
        ("hu2019bison", "Table 4", "UpDown (SCST)", "bison:accuracy", 84.27),
        ("hu2019bison", "sec. 6", "references:meteor", "bison:accuracy", 74.44),
    ],
)
def test_corner_values_of_published_tables(paper, table, model, key, value):
    assert load_published_table(paper, table)[model, key].value == value


def test_printed_model_names_are_stored():
    assert load_published_table("chun2022eccv", "Table D.2").printed_names["PVSE K=1, No NM"] == "PVSE K=1, Sum triplet†"
    assert load_published_table("chun2022eccv", "Table 4").printed_names["VSE++"] == "VSE++†"


def test_missing_published_number_is_an_error():
    table = load_published_table("parekh2021cxc", "Table 2")
    assert "VSRN-paper" in table.models
    with pytest.raises(CrossmatchError, match="has no cxc:i2t/hit@1 for VSRN-paper"):
        table["VSRN-paper", "cxc:i2t/hit@1"]


def test_every_paper_is_in_the_bibliography():
    bibliography = (ROOT / "docs/references.bib").read_text()
    assert all(f"{{{paper}," in bibliography for paper, _ in load_published_tables())


# Tables with results


def test_published_numbers_are_in_parentheses():
    (table,) = tables_with_published([result(), result("mine")])
    measured = [line for line in table.rows if line[0] == "measured"]
    published = [line for line in table.rows if line[0] == "published"]
    assert [line[1] for line in measured] == ["BLIP", "mine"]
    assert measured + published == list(table.rows)  # in this order, and nothing else
    assert len(published) == 25 + 5
    for line in published:
        assert re.fullmatch(r"\(.+\)", line[1])
        assert re.match(r"(chun2022eccv|parekh2021cxc), Table", line[2])
        assert all(re.fullmatch(r"\([\d.±]+\)|–", cell) for cell in line[3:])
        assert set(line[3:]) != {"–"}
    for line in measured:
        assert not any("(" in cell for cell in line)
        assert all("±" in cell or cell == "–" for cell in line[3:])


def test_measured_and_published_rows_of_one_model_are_distinct():
    (table,) = tables_with_published([result("BLIP")])
    both = [line for line in table.rows if "BLIP" in line[1]]
    assert [line[:3] for line in both] == [
        ("measured", "BLIP", "this result"),
        ("published", "(BLIP)", "chun2022eccv, Table D.2, Table D.3"),
    ]
    assert both[0][3:5] == ("41.8 ± 1.0", "31.3 ± 1.0")
    assert both[1][3:] == ("(81.90)", "(64.32)", "–")


def test_columns_are_the_metrics_of_the_results():
    (table,) = tables_with_published([result()])
    assert table.header[0][3:] == ("i2t", "t2i", "")
    assert table.header[1] == ("origin", "model", "source", "R@1", "R@1", "Med r")
    assert "parentheses" in format_table(table)


def test_notes_of_a_published_table_are_shown():
    (table,) = tables_with_published([result(task="pmrp", rows=[row("i2t/zeta=0", "pmrp@50", 50.0)])])
    assert any("does not average" in note for note in table.notes)
    (other,) = tables_with_published([result()])
    assert not any("does not average" in note for note in other.notes)


def test_other_data_get_no_published_numbers():
    with pytest.raises(UsageError, match="No published numbers for coco-5k split=val. There are numbers for the default data of"):
        tables_with_published([result(options={"split": "val"})])
    with pytest.raises(UsageError, match="diorama/retrieval"):
        tables_with_published([result(task="diorama/retrieval")])
    with pytest.raises(CrossmatchError, match="No results"):
        tables_with_published([])


def test_irrelevant_options_are_ignored():
    (table,) = tables_with_published([result(options={"metrics": "hit@1", "seed": "3"})])
    assert len([line for line in table.rows if line[0] == "published"]) == 30


def test_results_without_published_numbers_are_left_out():
    assert [t.title for t in tables_with_published([result(), result(task="diorama/retrieval")])] == [
        "coco-5k: measured and published"
    ]


def test_published_number_is_not_a_result(tmp_path):
    n = find_published_numbers("coco-5k")[0]
    assert not isinstance(n, ResultRow | Result)
    assert not {"low", "high", "signature", "chance"} & {f.name for f in fields(PublishedNumber)}
    with pytest.raises(TypeError):
        ResultRow(**vars(n))
    folder = Path(load_published_table.__code__.co_filename).with_name("papers")
    with pytest.raises(UsageError, match="no results"):
        load_results([folder])


def test_json_rows_are_marked_as_published():
    rows = published_rows("cxc")
    assert len(rows) == len(find_published_numbers("cxc"))
    assert all(r["published"] is True and r["source"] for r in rows)


def test_unknown_published_table_is_an_error():
    with pytest.raises(UsageError, match="No Table 9 of chun2022eccv. Choose from: chun2022eccv, Table 4"):
        load_published_table("chun2022eccv", "Table 9")
