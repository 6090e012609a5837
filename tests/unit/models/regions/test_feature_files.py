"""Files of region features in every layout, compared with the arrays that were written, and damaged files."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.regions.feature_files import RegionFile, to_fractions
from crossmatch.models.regions.file_layouts import LAYOUTS

IDS = ["391895", "522418", "184613", "318219"]
F, K = 6, 3
COUNTS = [3, 1, 2, 3]  # where the number of regions differs
WIDTH, HEIGHT = 640, 480


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def features() -> np.ndarray:
    return rng().normal(size=(len(IDS), K, F)).astype(np.float32)


def corners() -> np.ndarray:
    """Boxes in fractions."""
    low = rng().uniform(0, 0.5, (len(IDS), K, 2))
    return np.concatenate([low, low + rng().uniform(0.1, 0.5, low.shape)], axis=2).astype(np.float32)


def in_pixels() -> np.ndarray:
    return (corners() * [WIDTH, HEIGHT, WIDTH, HEIGHT]).astype(np.float32)


# -- writers of each layout


def scan(folder: Path, rows: int = 1, lines: int = 1) -> Path:
    np.save(folder / "dev_ims.npy", np.repeat(features(), rows, axis=0))
    (folder / "dev_ids.txt").write_text("".join(f"{name}\n" for name in IDS for _ in range(lines)))
    return folder / "dev_ims.npy"


def row_of(n: int, with_objects: bool = False) -> str:
    image_features, image_boxes = features()[n, : COUNTS[n]], in_pixels()[n, : COUNTS[n]]
    encoded_boxes, encoded_features = (
        base64.b64encode(np.ascontiguousarray(a).tobytes()).decode() for a in (image_boxes, image_features)
    )
    more = ["", "", "", ""] if with_objects else []
    size = [HEIGHT, WIDTH] if with_objects else [WIDTH, HEIGHT]
    return "\t".join(map(str, [IDS[n], *size, *more, COUNTS[n], encoded_boxes, encoded_features])) + "\n"


def tsv(folder: Path, with_objects: bool = False) -> Path:
    (folder / "features.tsv").write_text("".join(row_of(n, with_objects) for n in range(len(IDS))))
    return folder / "features.tsv"


def tsv_parts(folder: Path) -> Path:
    for part, numbers in enumerate(((0, 1), (2, 3))):
        (folder / f"karpathy_train_genome.tsv.{part}").write_text("".join(row_of(n) for n in numbers))
    return folder


def npz(folder: Path, save: Callable[..., None] = np.savez) -> Path:
    padded, boxes = features(), in_pixels()
    for n, count in enumerate(COUNTS):
        padded[n, count:] = 7.0  # rows beyond the count are ignored
    sizes = {"image_w": np.full(len(IDS), WIDTH), "image_h": np.full(len(IDS), HEIGHT)}
    save(folder / "regions.npz", ids=np.array(IDS), features=padded, boxes=boxes, counts=np.array(COUNTS), **sizes)
    return folder / "regions.npz"


def cocobu(folder: Path) -> Path:
    for n, name in enumerate(IDS):
        np.savez_compressed(folder / f"{name}.npz", feat=features()[n, : COUNTS[n]])
    return folder


def grouped_npz(folder: Path) -> Path:
    for n, name in enumerate(IDS):
        arrays = {"x": features()[n, : COUNTS[n]], "bbox": in_pixels()[n, : COUNTS[n]], "image_w": WIDTH, "image_h": HEIGHT}
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


def h5_items(folder: Path) -> Path:
    with pytest.importorskip("h5py").File(folder / "cocobu.h5", "w") as file:
        for n, name in enumerate(IDS):
            file[name] = features()[n, : COUNTS[n]]
    return folder / "cocobu.h5"


def h5_groups(folder: Path) -> Path:
    with pytest.importorskip("h5py").File(folder / "groups.h5", "w") as file:
        for n, name in enumerate(IDS):
            group = file.create_group(name)
            group["features"], group["boxes"] = features()[n, : COUNTS[n]], in_pixels()[n, : COUNTS[n]]
            group.attrs["image_w"], group.attrs["image_h"] = WIDTH, HEIGHT
    return folder / "groups.h5"


def h5_marked(folder: Path) -> Path:
    with pytest.importorskip("h5py").File(folder / "coco_detections.hdf5", "w") as file:
        for n, name in enumerate(IDS):
            file[f"{name}_features"], file[f"{name}_boxes"] = features()[n, : COUNTS[n]], in_pixels()[n, : COUNTS[n]]
            file[f"{name}_cls_prob"] = np.ones((COUNTS[n], 2))
    return folder / "coco_detections.hdf5"


def h5_fixed(folder: Path) -> Path:
    with pytest.importorskip("h5py").File(folder / "val36.hdf5", "w") as file:
        file["image_features"], file["image_bb"] = features(), in_pixels()
        file["spatial_features"] = np.concatenate([corners(), np.ones((len(IDS), K, 2), np.float32)], axis=2)
    (folder / "val36_imgid2idx.pkl").write_bytes(pickle.dumps({int(name): n for n, name in enumerate(IDS)}))
    return folder / "val36.hdf5"


def h5_adaptive(folder: Path) -> Path:
    ends = np.cumsum([0, *COUNTS])
    is_region = np.arange(K) < np.array(COUNTS)[:, None]
    with pytest.importorskip("h5py").File(folder / "val.hdf5", "w") as file:
        file["image_features"], file["image_bb"] = features()[is_region], in_pixels()[is_region]
        file["pos_boxes"] = np.stack([ends[:-1], ends[1:]], axis=1)
    (folder / "val_imgid2idx.json").write_text(json.dumps({name: n for n, name in enumerate(IDS)}))
    return folder / "val.hdf5"


WRITERS: dict[str, tuple[Callable[[Path], Path], str, bool, bool]] = {
    "scan": (scan, "npy", False, False),
    "tsv": (tsv, "tsv", True, True),
    "tsv with objects": (lambda folder: tsv(folder, with_objects=True), "tsv", True, True),
    "tsv in parts": (tsv_parts, "tsv folder", True, True),
    "npz": (npz, "npz", True, True),
    "compressed npz": (lambda folder: npz(folder, np.savez_compressed), "npz", True, True),
    "npz folder": (cocobu, "npz folder", True, False),
    "npz folder with boxes": (grouped_npz, "npz folder", True, True),
    "h5 by id": (h5_items, "h5", True, False),
    "h5 in groups": (h5_groups, "h5", True, True),
    "h5 with marks": (h5_marked, "h5", True, False),
    "h5 arrays": (h5_fixed, "h5", False, True),
    "h5 adaptive": (h5_adaptive, "h5", True, False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_layout_is_read(name: str, tmp_path: Path) -> None:
    write, layout, has_counts, has_boxes = WRITERS[name]
    file = RegionFile.open(write(tmp_path))
    assert file.layout == layout
    assert sorted(file.ids.tolist()) == sorted(IDS)
    assert (file.dimensions, len(file)) == (F, len(IDS))
    order = [2, 0, 3, 1]
    values, is_region, boxes = file.take([IDS[n] for n in order])
    assert values.dtype == boxes.dtype == np.float32
    for row, n in enumerate(order):
        count = COUNTS[n] if has_counts else K
        assert is_region[row].tolist() == [k < count for k in range(K)]
        assert np.array_equal(values[row, :count], features()[n, :count])
        assert not values[row, count:].any()
        assert np.allclose(boxes[row, :count], corners()[n, :count] if has_boxes else 0, atol=1e-6)
    alone = file.take([IDS[1]])
    assert alone[0].shape == (1, COUNTS[1] if has_counts else K, F)


@pytest.mark.parametrize("name", WRITERS)
def test_hash_depends_on_the_content_only(name: str, tmp_path: Path) -> None:
    write, *_ = WRITERS[name]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first, second = (RegionFile.open(write(tmp_path / folder)) for folder in ("a", "b"))
    if "h5" not in name and "compressed" not in name and "npz" not in name:  # other formats store the time of writing
        assert first.hash == second.hash
    part = second.parts[0]
    raw = bytearray(part.read_bytes())
    raw[len(raw) // 2] ^= 1
    part.write_bytes(raw)
    assert RegionFile(second.path, second.layout, second.ids, F, second.read, second.parts).hash != first.hash


def test_every_layout_is_tested() -> None:
    assert {layout for _, layout, *_ in WRITERS.values()} == {layout.name for layout in LAYOUTS}


@pytest.mark.parametrize(("rows", "lines"), [(1, 1), (1, 5), (5, 5), (5, 1)])
def test_rows_may_be_repeated_for_each_caption(tmp_path: Path, rows: int, lines: int) -> None:
    file = RegionFile.open(scan(tmp_path, rows, lines))
    assert file.ids.tolist() == IDS
    assert np.array_equal(file.take(IDS)[0], features())


def test_whole_image_is_one_region(tmp_path: Path) -> None:
    np.save(tmp_path / "dev_ims.npy", features()[:, 0])
    (tmp_path / "dev_ids.txt").write_text("\n".join(IDS))
    assert np.array_equal(RegionFile.open(tmp_path / "dev_ims.npy").take(IDS)[0], features()[:, :1])


@pytest.mark.parametrize("write", [scan, npz, tsv])
def test_arrays_are_memory_mapped(tmp_path: Path, write: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of features may be larger than memory, so opening one reads no features."""
    path = write(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail(f"{self} was read whole"))
    mapped = []
    original = np.memmap.__new__

    def watched(cls: Any, *args: Any, **kwargs: Any) -> Any:
        mapped.append(args)
        return original(cls, *args, **kwargs)

    monkeypatch.setattr(np.memmap, "__new__", watched)
    RegionFile.open(path).take(IDS[:1])
    assert mapped or path.suffix == ".tsv"


def test_rows_of_zeros_are_padding(tmp_path: Path) -> None:
    padded = features()
    padded[1, 1:] = 0
    np.savez(tmp_path / "a.npz", image_ids=np.array(IDS), features=padded)
    _, is_region, _ = RegionFile.open(tmp_path / "a.npz").take(IDS)
    assert is_region.sum(axis=1).tolist() == [3, 1, 3, 3]


def test_half_precision_is_converted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=np.array(IDS), feat=features().astype(np.float16))
    values = RegionFile.open(tmp_path / "a.npz").take(IDS)[0]
    assert values.dtype == np.float32
    assert np.array_equal(values, features().astype(np.float16).astype(np.float32))


def test_spellings_of_a_coco_id_are_equal(tmp_path: Path) -> None:
    file = RegionFile.open(scan(tmp_path))
    assert np.array_equal(file.take(["COCO_val2014_000000522418.jpg"])[0], features()[1:2])
    assert file.find_rows(["000000391895", "7"]).tolist() == [0, -1]


def test_store_returns_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    store = RegionFile.open(tsv(tmp_path)).select([IDS[3], IDS[1]])
    assert (len(store), store.dimensions) == (2, F)
    regions = store.take(np.array([1, 0, 1]))
    assert regions.features.shape == (3, K, F)
    assert regions.mask.sum(dim=1).tolist() == [1, 3, 1]
    assert torch.equal(regions.features[1], torch.from_numpy(features()[3]))
    assert torch.allclose(regions.boxes[1], torch.from_numpy(corners()[3]), atol=1e-6)


def test_boxes_become_fractions_if_the_size_is_known() -> None:
    assert to_fractions(np.array([[0.1, 0.2, 0.3, 1.0]])).tolist() == [pytest.approx([0.1, 0.2, 0.3, 1.0])]
    assert to_fractions(np.array([[10, 10, 30, 20]])).tolist() == [[0, 0, 0, 0]]
    assert to_fractions(np.array([[0, 0, 120, 50, 9, 9]]), 100, 100).tolist() == [[0, 0, 1, 0.5]]


# -- errors


def test_missing_ids_are_listed(tmp_path: Path) -> None:
    file = RegionFile.open(scan(tmp_path))
    with pytest.raises(
        CrossmatchError,
        match=r"regions of 1 of 5 images; missing: '1', '2', '3', … \(ids in the file look like '391895'\)\. Extract",
    ):
        file.take([IDS[0], "1", "2", "3", "4"])


def test_missing_paths_and_unknown_layouts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        RegionFile.open(tmp_path / "none.npy")
    (tmp_path / "a.bin").write_bytes(b"")
    for path in (tmp_path / "a.bin", tmp_path):
        with pytest.raises(CrossmatchError, match=r"none of the layouts.*NAME_ims\.npy"):
            RegionFile.open(path)


def test_truncated_npy_is_refused(tmp_path: Path) -> None:
    path = scan(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CrossmatchError, match=r"dev_ims\.npy cannot be read as npy .* truncated or damaged: copy it again"):
        RegionFile.open(path)


def test_numbers_of_rows_and_ids_must_fit(tmp_path: Path) -> None:
    path = scan(tmp_path, rows=2)
    with pytest.raises(CrossmatchError, match=r"8 rows, and dev_ids\.txt 4 lines with 4 different ids"):
        RegionFile.open(path)
    (tmp_path / "dev_ids.txt").unlink()
    with pytest.raises(CrossmatchError, match=r"needs dev_ids\.txt in the same folder"):
        RegionFile.open(path)
    np.savez(tmp_path / "a.npz", ids=np.array(IDS[:3]), features=features())
    with pytest.raises(CrossmatchError, match="3 ids but 4 rows of features"):
        RegionFile.open(tmp_path / "a.npz")


def changed(path: Path, line: int, column: int, text: str) -> Path:
    rows = [row.split("\t") for row in path.read_text().splitlines()]
    rows[line][column] = text
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_damaged_tsv_is_refused(tmp_path: Path) -> None:
    file = RegionFile.open(changed(tsv(tmp_path), 2, 5, "not base64!"))
    assert len(file.take([IDS[0], IDS[1]])[0]) == 2  # other images can be read
    with pytest.raises(CrossmatchError, match=rf"image '{IDS[2]}' cannot be read \(bad base64.*extract or copy it again"):
        file.take(IDS)
    with pytest.raises(
        CrossmatchError, match=rf"image '{IDS[3]}' cannot be read \(7 boxes, but 12 numbers of boxes and 18 of features\)"
    ):
        RegionFile.open(changed(tsv(tmp_path), 3, 3, "7")).take([IDS[3]])
    with pytest.raises(CrossmatchError, match=rf"image '{IDS[0]}' cannot be read"):
        RegionFile.open(changed(tsv(tmp_path), 0, 3, "many"))
    path = tsv(tmp_path)
    path.write_text(path.read_text()[:-80])
    with pytest.raises(CrossmatchError, match=rf"image '{IDS[3]}'"):
        RegionFile.open(path).take([IDS[3]])
    path.write_text("one line and no columns")
    with pytest.raises(CrossmatchError, match="line 1 has no columns"):
        RegionFile.open(path)
    path.write_text("")
    with pytest.raises(CrossmatchError, match="is empty"):
        RegionFile.open(path)


def spoilt(values: np.ndarray, at: Any, value: Any) -> np.ndarray:
    values[at] = value
    return values


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"counts": [3, -1, 2, 3]}, rf"image '{IDS[1]}' cannot be read \(-1 regions are counted among 3 rows\)"),
        ({"counts": [3, 9, 2, 3]}, r"9 regions are counted among 3 rows"),
        ({"boxes": spoilt(corners(), (1, 2, 0), np.nan)}, rf"image '{IDS[1]}' cannot be read \(NaN or infinity among its boxes"),
        ({"boxes": spoilt(corners(), (1, 2, 0), np.inf)}, "NaN or infinity among its boxes"),
        ({"boxes": in_pixels(), "image_w": [np.nan] * 4, "image_h": [480] * 4}, "or in the size of the image"),
        ({"boxes": corners()[:, :, :2]}, r"has boxes of shape"),
        ({"features": features().astype(str)}, rf"image '{IDS[0]}': expected real numbers as features, got dtype <U"),
        ({"features": features().astype(complex)}, "got dtype complex128"),
        ({"features": features().astype(np.float64) * 1e300}, rf"image '{IDS[0]}' has NaN or infinity among its features"),
        ({"features": np.float32(3)}, r"a\.npz cannot be read as"),
        ({"features": features()[:, :0]}, rf"image '{IDS[0]}' has no regions"),
    ],
)
def test_wrong_npz_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **({"ids": np.array(IDS), "features": features()} | arrays))
    with pytest.raises(CrossmatchError, match=message):
        RegionFile.open(tmp_path / "a.npz").take(IDS)


def test_changed_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=np.array(IDS), features=features())
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    at = raw.index(features().tobytes())
    raw[at + 40 : at + 60] = bytes(20)
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(CrossmatchError, match=r"a\.npz cannot be read as npz \(the checksum of features\.npy is wrong"):
        RegionFile.open(tmp_path / "a.npz")


def in_folder(folder: Path, n: int, content: bytes) -> Path:
    (folder / "one").mkdir()
    for position, name in enumerate(IDS):
        np.savez(folder / f"one/{name}.npz", feat=features()[position])
    (folder / f"one/{sorted(IDS)[n]}.npz").write_bytes(content)
    return folder / "one"


@pytest.mark.parametrize("content", [b"", b"hello world", b"PK\x03\x04 and no more"])
@pytest.mark.parametrize("n", [0, 2])
def test_damaged_file_in_a_folder_is_named(tmp_path: Path, content: bytes, n: int) -> None:
    path = in_folder(tmp_path, n, content)
    with pytest.raises(CrossmatchError, match=rf"{sorted(IDS)[n]}\.npz is truncated or damaged.*again"):
        RegionFile.open(path).take(IDS)


@pytest.mark.parametrize("odd", ["scalar", "text", "group", "noise"])
@pytest.mark.parametrize("n", [0, 2])
def test_damaged_image_in_an_h5_is_refused(tmp_path: Path, odd: str, n: int) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for at, name in enumerate(sorted(IDS)):
            if at != n or odd == "noise":
                file[name] = features()[at]
            elif odd == "group":
                file.create_group(name)
            else:
                file[name] = 3.0 if odd == "scalar" else "abc"
    if odd == "noise":
        raw = bytearray((tmp_path / "a.h5").read_bytes())
        raw[600 + 400 * n : 3000] = rng().bytes(2400 - 400 * n)
        (tmp_path / "a.h5").write_bytes(raw)
    with pytest.raises(CrossmatchError, match=r"a\.h5.*again"):
        RegionFile.open(tmp_path / "a.h5").take(IDS)


def test_ids_may_have_spaces_and_tsv_a_header(tmp_path: Path) -> None:
    path = scan(tmp_path)
    (tmp_path / "dev_ids.txt").write_text("".join(f"my {name}.jpg\r\n" for name in IDS))
    assert RegionFile.open(path).ids.tolist() == [f"my {name}.jpg" for name in IDS]
    path = tsv(tmp_path)
    path.write_text("image_id\timage_w\timage_h\tnum_boxes\tboxes\tfeatures\n" + path.read_text())
    assert RegionFile.open(path).ids.tolist() == IDS


def test_wrong_features_are_refused(tmp_path: Path) -> None:
    odd = base64.b64encode(np.zeros(COUNTS[1] * 5, np.float32)).decode()
    with pytest.raises(CrossmatchError, match=rf"image '{IDS[1]}': expected features of shape \(regions, 6\), got \(1, 5\)"):
        RegionFile.open(changed(tsv(tmp_path), 1, 5, odd)).take([IDS[1]])
    for value, message in ((np.nan, "NaN or infinity"), (0.0, "no regions, or features that are all 0")):
        bad = features()
        bad[2] = value
        np.savez(tmp_path / "a.npz", ids=np.array(IDS), features=bad)
        with pytest.raises(CrossmatchError, match=rf"image '{IDS[2]}' has {message}"):
            RegionFile.open(tmp_path / "a.npz").take(IDS)


def test_duplicate_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=rf"has image '{IDS[0]}' 2 times"):
        RegionFile.open(changed(tsv(tmp_path), 1, 0, IDS[0]))


def test_truncated_npz_and_h5_are_refused(tmp_path: Path) -> None:
    for path in (npz(tmp_path), h5_fixed(tmp_path)):
        path.write_bytes(path.read_bytes()[:300])
        with pytest.raises(CrossmatchError, match=rf"{path.name} cannot be read as (npz|h5) .*copy it again"):
            RegionFile.open(path)
    folder = tmp_path / "items"
    folder.mkdir()
    file = RegionFile.open(cocobu(folder))
    damaged = folder / f"{IDS[1]}.npz"
    damaged.write_bytes(damaged.read_bytes()[:60])
    with pytest.raises(CrossmatchError, match=rf"{IDS[1]}.*(damaged|cannot be read)"):
        file.take([IDS[1]])
    np.savez(tmp_path / "b.npz", ids=np.array(IDS), vectors=features())
    with pytest.raises(CrossmatchError, match="expected arrays ids and features, got ids, vectors"):
        RegionFile.open(tmp_path / "b.npz")


def test_h5_rows_need_valid_ids(tmp_path: Path) -> None:
    path = h5_fixed(tmp_path)
    beside = tmp_path / "val36_imgid2idx.pkl"
    beside.write_bytes(pickle.dumps({1: 0, 2: 0, 3: 1, 4: 2}))
    with pytest.raises(CrossmatchError, match="expected the rows 0 to 3"):
        RegionFile.open(path)
    beside.write_bytes(pickle.dumps({1: 0}))
    with pytest.raises(CrossmatchError, match="1 ids but 4 rows of features"):
        RegionFile.open(path)
    beside.write_bytes(pickle.dumps({Path("a"): 0}))
    with pytest.raises(CrossmatchError, match=r"does not contain .*pathlib.*which is not loaded"):
        RegionFile.open(path)
    beside.unlink()
    with pytest.raises(CrossmatchError, match=r"does not say which image each row is\. Add val36_ids\.txt"):
        RegionFile.open(path)


def test_h5_rows_beyond_the_end_are_refused(tmp_path: Path) -> None:
    path = h5_adaptive(tmp_path)
    with pytest.importorskip("h5py").File(path, "r+") as file:
        file["pos_boxes"][3] = [6, 60]
    with pytest.raises(CrossmatchError, match=rf"image '{IDS[3]}' cannot be read \(its regions are the rows 6 to 60 of 9\)"):
        RegionFile.open(path).take(IDS)


def test_empty_h5_is_refused(tmp_path: Path) -> None:
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w"):
        pass
    with pytest.raises(CrossmatchError, match="has no region features"):
        RegionFile.open(tmp_path / "a.h5")


def test_missing_h5py_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = h5_fixed(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(CrossmatchError, match=r"needs h5py.*crossmatch\[regions\]"):
        RegionFile.open(path)
