"""Data sets of forced choices.

Addresses name the commit with exactly these files; a second address names the newest commit.
"""

from __future__ import annotations

from crossmatch.benchmarks.datasets.counts import (
    count_bison_captions,
    count_bison_images,
    count_bison_trials,
    count_csv_rows,
    count_json_records,
    count_jsonl_lines,
)
from crossmatch.data.io.dataset_files import CountCheck, DataFile, DataFolder, DataSet, Use

COCO_IMAGES_2017 = "http://images.cocodataset.org/zips/val2017.zip"
BISON_REPOSITORY = "https://raw.githubusercontent.com/facebookresearch/binary-image-selection"
BIVLC_REPOSITORY = "https://raw.githubusercontent.com/IMirandaM/BiVLC"
SUGARCREPE_NEWEST = "https://raw.githubusercontent.com/RAIVNLab/sugar-crepe/main"
WINOGROUND_HUB = "https://huggingface.co/datasets/facebook/winoground"

# The sha256 of the official file is not known (None), so the three counts of the paper's Table 2 check the file.
BISON = DataSet(
    name="bison",
    description="COCO-BISON: 54,253 captions, each with the image it was written for and a look-alike",
    licence="CC BY-NC 4.0",
    cite="hu2019bison",
    homepage="https://github.com/facebookresearch/binary-image-selection",
    non_commercial=True,
    tasks=("bison",),
    files=(
        DataFile(
            "bison/bison_annotations.cocoval2014.json", None, None,
            f"{BISON_REPOSITORY}/master/annotations/bison_annotations.cocoval2014.json",
            (f"{BISON_REPOSITORY}/HEAD/annotations/bison_annotations.cocoval2014.json",),
        ),
        DataFile(
            "bison/fake_predictions.cocoval2014.json",
            "82654607289433bbf336ddbe9fdcd58fa61011e20fc962f7f0afc38c67756e69", 2_745_409,
            f"{BISON_REPOSITORY}/428e64ba3cf0918e06b36308ee0e5c11d3a28b53/predictions/fake_predictions.cocoval2014.json",
            use="optional",
        ),
    ),
    count_checks=(
        CountCheck("trials", 54_253, ("bison/bison_annotations.cocoval2014.json",), count_bison_trials),
        CountCheck("images", 38_680, ("bison/bison_annotations.cocoval2014.json",), count_bison_images),
        CountCheck("captions", 45_218, ("bison/bison_annotations.cocoval2014.json",), count_bison_captions),
    ),
)  # fmt: skip


def _bivlc(path: str, sha256: str, size: int, commit: str, inside: str, use: Use = "optional") -> DataFile:
    newest = f"{BIVLC_REPOSITORY}/main/{inside.replace('results%20copy', 'results')}"
    return DataFile(path, sha256, size, f"{BIVLC_REPOSITORY}/{commit}/{inside}", (newest,), use=use)


BIVLC = DataSet(
    name="bivlc",
    description="BiVLC: 2,933 trials of two images and two captions; captions and published outcomes (the images are on the hub)",
    licence="MIT",
    cite="miranda2024bivlc",
    homepage="https://github.com/IMirandaM/BiVLC",
    tasks=("bivlc",),
    files=(
        _bivlc("bivlc/results/BiVLC_ViT-B-32.csv", "a16d196aa1ad012f826b002fc59df56926ab08bed68eae33f96ceec5cdb48c82", 1_021_439,
               "2243589f96b90a813dea70f24cd37de671a1d625", "results/BiVLC_ViT-B-32.csv", "required"),
        _bivlc("bivlc/BiVLC_negative_imgs.csv", "d7835bf16fc5a1cbd1b7f3b67214088c918b97b043b337f4f4d4e5168877c68e", 1_970_260,
               "c8486f8b2c4c3c5c4b55500f2a236ec02d2f12d4", "src/BiVLC_Generation/BiVLC_negative_imgs.csv", "required"),
        _bivlc("bivlc/results/BiVLC_CLIP_COCO.csv", "f92c085fba9b2b8d00f27725c86cf69286d935527293b0adc3edeb24b515a46d", 1_020_004,
               "35f1689bdf172116e452172b5bae943bd1f17317", "results/BiVLC_CLIP_COCO.csv"),
        _bivlc("bivlc/results/BiVLC_CLIP_TROHN-Text.csv",
               "d6fe25e5ea7f8e1386557e76429cefffae4a30a0f699f5686fbaa76c8dfe4b9b", 1_020_457,
               "0a0f008aa39207fe8a0062f61b978c315c66bee1", "results/BiVLC_CLIP_TROHN-Text.csv"),
        *(
            _bivlc(f"bivlc/results/SUGARCREPE_CORRECT_{name}.csv", sha256, 1_173_087,
                   "3892af265c96ee65917ac55a094d79374d8aef18", f"results%20copy/SUGARCREPE_CORRECT_{name}.csv")
            for name, sha256 in (
                ("ViT-B-32", "91a6086987a7870ed5d5dcd2db287b5cbe477edb4ba54c5faed89d5cb9497db8"),
                ("CLIP_COCO", "fa2a1b8a8d1040ebc4db6b94d5cf9d32a70a5a1fe394f866d5c7bc5ef0d3bda8"),
                ("CLIP_TROHN-Text", "412972732dec0be3a79e615b1e71bbf8f1097cf02e247741889d8297cb2346e7"),
            )
        ),
        *(
            _bivlc(f"bivlc/detectors/{name}_CLIP_baseline.csv", sha256, size,
                   "634ae83ce20b24406ff883ae826e87566b55a88e", f"src/Detectors/results/{name}_CLIP_baseline.csv")
            for name, sha256, size in (
                ("BiVLC_Classifier_CORRECT", "f3bccba04badca7c423309052178acc0350bff5ff9a18a1acd627f8ae49d5794", 287_710),
                ("SUGARCREPE_Classifier", "a9937fae6ecd6039c02d9bab62f8c641cecfabab34590281c60034e66dcfae7f", 408_269),
            )
        ),
    ),
    folders=(
        DataFolder("bivlc/data", "2,933 rows with their pictures, Parquet", "https://huggingface.co/datasets/imirandam/BiVLC/tree/main/data"),
    ),
    count_checks=(
        CountCheck("trials", 2_933, ("bivlc/results/BiVLC_ViT-B-32.csv",), count_csv_rows),
        CountCheck("captions that BiVLC was made of", 7_512, ("bivlc/BiVLC_negative_imgs.csv",), count_csv_rows),
    ),
)  # fmt: skip

SUBSETS = (
    ("add_obj", 2_062, "1b9d76b93139a937b8dc1ada92a4f05ecc821bb3c291d752428bafadd4bb0682", 484_593),
    ("add_att", 692, "012d88d729693d193760e6f3393b06a1cf874380a9db0062e937201199fe044d", 158_863),
    ("replace_obj", 1_652, "9d299600639947e9d15281a9ded1382b376cf4ea088a8d08a1314bfe76e81898", 361_126),
    ("replace_att", 788, "9fe55fd4c0a9ad1f85d486d9f6d0215b41f867eb025026e7f7b5ce44352545ee", 176_843),
    ("replace_rel", 1_406, "356bcc2fc4c6aed3f4d9fd50acc58489bb1fe70c28791f9368d4cbf9ea39cdc9", 312_629),
    ("swap_obj", 245, "073cdb8e253d053614e80710834d9773b09dbc1dd0a412f6f9492262caa1dcad", 57_569),  # one less than the csv has
    ("swap_att", 666, "7a7ce04e5c4c80412b48c6f0c1347fb1a2f5d54c0be6aa429b64d390e442f8d0", 154_665),
)

SUGARCREPE = DataSet(
    name="sugarcrepe",
    description="SugarCrepe: 7,512 COCO captions, each with a hard negative",
    licence="MIT",
    cite="hsieh2023sugarcrepe",
    homepage="https://github.com/RAIVNLab/sugar-crepe",
    tasks=("sugarcrepe",),
    files=(
        _bivlc("sugarcrepe/test_SugarCrepe.csv", "8bc5b1693eb128592357dfb4a91a890781a4b052fb1703ab44fe7c4f0ef986fd", 1_143_029,
               "c8486f8b2c4c3c5c4b55500f2a236ec02d2f12d4", "source_data/SugarCrepe/test_SugarCrepe.csv", "required"),
        *(
            DataFile(f"sugarcrepe/{subset}.json", sha256, size, f"{SUGARCREPE_NEWEST}/data/{subset}.json", use="optional")
            for subset, _, sha256, size in SUBSETS
        ),
    ),
    folders=(DataFolder("coco/images/val2017", "5,000 images, 1 GB", COCO_IMAGES_2017),),
    count_checks=(
        CountCheck("trials", 7_512, ("sugarcrepe/test_SugarCrepe.csv",), count_csv_rows),
        *(
            CountCheck(f"trials in {subset}.json", n, (f"sugarcrepe/{subset}.json",), count_json_records)
            for subset, n, _, _ in SUBSETS
        ),
    ),
)  # fmt: skip

# The files need an account, so neither sha256 nor size is known.
WINOGROUND = DataSet(
    name="winoground",
    description="Winoground: 400 trials of two images and two captions with equal words in different order",
    licence="its own, for research only; gated",
    cite="thrush2022winoground",
    homepage=f"{WINOGROUND_HUB} (gated: log in, accept the licence, download data/examples.jsonl and data/images.zip by hand, "
    "and give their folder with --from)",
    non_commercial=True,
    tasks=("winoground",),
    files=(DataFile("winoground/examples.jsonl", None, None, f"{WINOGROUND_HUB}/resolve/main/data/examples.jsonl"),),
    folders=(DataFolder("winoground/images", "800 images, 0.4 GB: data/images.zip, unpacked", WINOGROUND_HUB),),
    count_checks=(CountCheck("trials", 400, ("winoground/examples.jsonl",), count_jsonl_lines),),
)
