"""The systems that the five papers evaluate, and how to get each: released weights, training, or precomputed scores.

Names are those of the published tables (`report/papers`); a test checks that no retrieval system is missing.
"""

from __future__ import annotations

from typing import NamedTuple

BISON, CXC, BIVLC, ECCV = "hu2019bison", "parekh2021cxc", "miranda2024bivlc", "chun2022eccv"

OPEN_CLIP = "comes with open_clip, once downloaded"
TRAIN = "crossmatch train {}"
TIMM = "comes with timm, once downloaded"
SCORES = "by the authors' code: score with it, then precomputed:FILE"


class PublishedSystem(NamedTuple):
    """A system of a paper: its name there, its model name here, its ability, and where its weights come from."""

    name: str
    paper: str
    model: str
    ability: str
    weights: str


def _trained(paper: str, ability: str, **recipes: str) -> tuple[PublishedSystem, ...]:
    """Return the systems of a paper that are trained here, by their recipes."""
    return tuple(PublishedSystem(name, paper, "FOLDER", ability, TRAIN.format(recipe)) for name, recipe in recipes.items())


PUBLISHED_SYSTEMS = (
    *_trained(BISON, "embed", **{"ConvNet+BoW": "convnet-bow", "ConvNet+Bi-GRU": "convnet-bigru", "Obj+Bi-GRU": "obj-bigru"}),
    *_trained(BISON, "score, ground", **{"SCAN i2t": "scan-i2t", "SCAN t2i": "scan-t2i"}),
    PublishedSystem("BoW", CXC, "bow", "embed texts", "in the package wordllama (the paper: GloVe)"),
    PublishedSystem("USE_mling-large", CXC, "sentence:NAME", "embed texts", "its distillation: hf download \
sentence-transformers/distiluse-base-multilingual-cased-v2"),
    PublishedSystem("InceptionV3", CXC, "timm:inception_v3", "embed images", TIMM),
    PublishedSystem("ResNet-152", CXC, "timm:resnet152.tv_in1k", "embed images", TIMM),
    PublishedSystem("SimCLRv2", CXC, "timm:resnet152,FILE", "embed images", "the authors' checkpoint, converted to PyTorch"),
    *_trained(CXC, "embed", **{"VSE++": "vse++", "VSRN-github": "vsrn", "DE_I2T": "de-i2t", "DE_T2T+I2T": "de-t2t-i2t"}),
    *_trained(CXC, "embed texts", DE_T2T="de-t2t"),
    PublishedSystem("VSRN-paper", CXC, "FOLDER", "embed",
                    "crossmatch train vsrn, twice with two seeds; the paper adds both similarities"),
    *_trained(ECCV, "embed", **{"VSE0": "vse0", "VSE++": "vse++", "VSRN": "vsrn"}),
    *_trained(ECCV, "embed", **{f"VSE∞ ({kind})": f"vse-infinity --regions FILE ({kind} features)"
                                for kind in ("BUTD region", "BUTD grid", "WSL grid")}),
    *_trained(ECCV, "score", **{"SGR": "sgr", "SAF": "saf", "PVSE K=2": "pvse-k2"}),
    *_trained(ECCV, "embed", **{"PVSE K=1": "pvse-k1", "PVSE K=1, No NM": "pvse-k1 --set objective.negatives=sum",
                                "PVSE K=1, Semi-hard NM": "pvse-k1 --set objective.negatives=semi-hard",
                                "PVSE K=1, Hardest NM": "pvse-k1"}),
    *_trained(ECCV, "embed", **{"PCME": "pcme", "PCME (CutMix pre-trained)": "pcme --regions FILE (its backbone's features)"}),
    PublishedSystem("VSRN + AOQ", ECCV, "precomputed:FILE", "scores", SCORES),
    PublishedSystem("CVSE", ECCV, "precomputed:FILE", "scores", SCORES),
    PublishedSystem("CLIP ViT-B/32", ECCV, "open_clip:ViT-B-32,openai", "embed", OPEN_CLIP),
    PublishedSystem("CLIP ViT-B/16", ECCV, "open_clip:ViT-B-16,openai", "embed", OPEN_CLIP),
    PublishedSystem("CLIP ViT-L/14", ECCV, "open_clip:ViT-L-14,openai", "embed", OPEN_CLIP),
    PublishedSystem("ViLT (zero-shot)", ECCV, "hf:dandelin/vilt-b32-mlm-itm", "score", "hf download dandelin/vilt-b32-mlm-itm"),
    PublishedSystem("ViLT", ECCV, "hf:dandelin/vilt-b32-finetuned-coco", "score", "hf download dandelin/vilt-b32-finetuned-coco"),
    PublishedSystem("VinVL (zero-shot)", ECCV, "precomputed:FILE", "scores", SCORES),
    PublishedSystem("VinVL", ECCV, "precomputed:FILE", "scores", SCORES),
    PublishedSystem("BLIP", ECCV, "hf:Salesforce/blip-itm-large-coco,released", "score",
                    "hf download Salesforce/blip-itm-large-coco; \
`released` ranks as its authors' evaluation, but all pairs and not the best 256; without it, transformers' P(match)"),
    PublishedSystem("CLIP", BIVLC, "open_clip:ViT-B-32,openai", "embed", OPEN_CLIP),
    PublishedSystem("NegCLIP", BIVLC, "open_clip:ViT-B-32-quickgelu,FILE", "embed",
                    "github.com/mertyg/vision-language-models-are-bows"),
    PublishedSystem("GNM", BIVLC, "open_clip:ViT-B-32-quickgelu,FILE", "embed", "github.com/ugorsahin/Generative-Negative-Mining"),
    PublishedSystem("CLIP_COCO", BIVLC, "open_clip:ViT-B-32-quickgelu,FILE", "embed", "github.com/IMirandaM/BiVLC"),
    PublishedSystem("CLIP_TROHN-Text", BIVLC, "open_clip:ViT-B-32-quickgelu,FILE", "embed", "github.com/IMirandaM/BiVLC"),
    PublishedSystem("CLIP_TROHN-Img", BIVLC, "open_clip:ViT-B-32-quickgelu,FILE", "embed", "github.com/IMirandaM/BiVLC"),
    PublishedSystem("Open CapPa", BIVLC, "hf:FOLDER", "log-likelihood",
                    "an image-to-text model of transformers; CapPa's own are in JAX: \
score with github.com/borisdayma/clip-jax, then precomputed:FILE"),
    PublishedSystem("VQAScore-XL", BIVLC, "hf:FOLDER,vqa", "score",
                    "an image-text-to-text model of transformers; CLIP-FlanT5 itself needs \
github.com/linzhiqiu/t2v_metrics: score with it, then precomputed:FILE"),
    PublishedSystem("VQAScore-XXL", BIVLC, "hf:FOLDER,vqa", "score", "as VQAScore-XL"),
    *_trained(BISON, "log-likelihood, caption", **{f"{name}{how}": f"{recipe}{after}" for name, recipe in
              (("ShowTell", "show-tell"), ("ShowAttTell", "show-att-tell"), ("UpDown", "updown"))
              for how, after in (("", ""), (" (SCST)", "-scst"))}),
    PublishedSystem("CLIP_Det", BIVLC, "FOLDER", "scores", "crossmatch train detector --begin open_clip:ViT-B-32,openai"),
    PublishedSystem("CLIP_TROHN-Img/Det", BIVLC, "FOLDER", "scores",
                    "crossmatch train detector --begin open_clip:ViT-B-32-quickgelu,FILE"),
)  # fmt: skip
