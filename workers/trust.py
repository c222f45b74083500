"""What a model's folder must satisfy before anything in it is loaded: known classes, no code, no pickles."""

import re
import struct
from pathlib import Path
from typing import Any

import msgspec

MAX_JSON_BYTES = 1_048_576
MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit, checked here before it is asked to read the header

# The pipelines that go from a text to pictures and are called with the arguments of `Generate`.
PIPELINES = frozenset(
    {
        "AuraFlowPipeline",
        "FluxPipeline",
        "HunyuanDiTPipeline",
        "LatentConsistencyModelPipeline",
        "Lumina2Pipeline",
        "PixArtAlphaPipeline",
        "PixArtSigmaPipeline",
        "QwenImagePipeline",
        "SanaPipeline",
        "StableDiffusion3Pipeline",
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
    }
)

# Of diffusers, whole families whose `from_pretrained` reads a JSON file and safetensors and nothing else.
_DIFFUSERS = re.compile(r"[A-Z]\w*Scheduler|Autoencoder\w*|[A-Z]\w*Transformer2DModel|UNet2DConditionModel")

# Of transformers, class by class; never an `Auto…` class, which would follow a folder's own word to its code.
_TRANSFORMERS = frozenset(
    {
        "BertModel",
        "BertTokenizer",
        "BertTokenizerFast",
        "CLIPImageProcessor",
        "CLIPFeatureExtractor",
        "CLIPTextModel",
        "CLIPTextModelWithProjection",
        "CLIPTokenizer",
        "CLIPTokenizerFast",
        "CLIPVisionModelWithProjection",
        "Gemma2Model",
        "GemmaTokenizer",
        "GemmaTokenizerFast",
        "LlamaTokenizerFast",
        "Qwen2Tokenizer",
        "Qwen2TokenizerFast",
        "Qwen2_5_VLForConditionalGeneration",
        "T5EncoderModel",
        "T5Tokenizer",
        "T5TokenizerFast",
        "UMT5EncoderModel",
    }
)

_WITHOUT_WEIGHTS = re.compile(r".*(Scheduler|Tokenizer|TokenizerFast|ImageProcessor|FeatureExtractor)")
_PICKLES = frozenset({".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})
_CODE = frozenset({".py", ".pyc", ".so"})


class Refused(Exception):
    """The model is not loaded; the message says why and what would help."""


class WeightsMissing(Refused):
    """The model could be trusted, but not all of it is on this machine."""


class ModelIndex(msgspec.Struct, frozen=True):
    """What `model_index.json` says, checked: the pipeline's class and the components that are there."""

    pipeline: str
    components: dict[str, str]


def check_index(text: bytes) -> ModelIndex:
    """Check a `model_index.json`. Raises `Refused` for any class that is not on the lists above."""
    if len(text) > MAX_JSON_BYTES:
        raise Refused(f"its model_index.json has {len(text)} bytes; {MAX_JSON_BYTES} are allowed")
    try:
        index = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as problem:
        raise Refused(f"its model_index.json cannot be read: {problem}") from None
    pipeline = index.get("_class_name")
    if not isinstance(pipeline, str) or pipeline not in PIPELINES:
        raise Refused(f"its pipeline {_shown(pipeline)} is not one of those that Kargah runs")
    components = {}
    for name, value in index.items():
        if isinstance(value, list | dict) and not name.startswith("_"):
            class_name = _check_component(name, value)
            if class_name is not None:
                components[name] = class_name
    return ModelIndex(pipeline, components)


def check_folder(folder: Path, root: Path | None = None) -> ModelIndex:
    """Check a folder in diffusers' format. Raises `Refused`.

    No file may lead outside `root`, by default the folder itself (the hub's cache links its snapshots to blobs
    beside them). Nothing is run and no weights are read: only JSON, names, and the length of each header.
    """
    index_file = folder / "model_index.json"
    if not index_file.is_file():
        raise WeightsMissing(f"{folder} has no model_index.json: it is not there, or no pipeline in diffusers' format")
    _check_files(folder, (root or folder).resolve())
    index = check_index(index_file.read_bytes())
    for name, class_name in index.components.items():
        if not _WITHOUT_WEIGHTS.fullmatch(class_name):
            _check_weights(folder / name)
    return index


def weights_bytes(folder: Path) -> int:
    """The size of all safetensors of a checked folder."""
    return sum(file.stat().st_size for file in folder.glob("*/*.safetensors"))


def _check_component(name: str, value: object) -> str | None:
    """The class of a component; None for one that is left out."""
    if not name.isidentifier():
        raise Refused(f"its component {_shown(name)} has a name that is not a plain word")
    match value:
        case [None, None]:
            return None
        case ["stable_diffusion", "StableDiffusionSafetyChecker" as class_name]:
            return class_name  # a class of diffusers' own, named by its pipeline's module
        case ["diffusers", str(class_name)] if _DIFFUSERS.fullmatch(class_name):
            return class_name
        case ["transformers", str(class_name)] if class_name in _TRANSFORMERS:
            return class_name
    raise Refused(f"its component {name!r} is of a class that is not on the list: {_shown(value)}")


def _check_files(folder: Path, root: Path) -> None:
    for file in sorted(folder.rglob("*")):
        shown = file.relative_to(folder)
        if not file.resolve().is_relative_to(root):
            raise Refused(f"its file {shown} leads out of the folder")
        if file.suffix.lower() in _CODE:
            raise Refused(f"it brings code ({shown}); Kargah runs only diffusers' own pipelines")
        if file.suffix == ".safetensors":
            _check_header(file, str(shown))


def _check_weights(component: Path) -> None:
    if any(component.glob("*.safetensors")):
        return
    pickles = sorted(file.name for file in component.glob("*") if file.suffix.lower() in _PICKLES)
    if pickles:
        raise Refused(
            f"its {component.name} has only pickled weights ({pickles[0]}), and a pickle can run code;"
            " save the model again with safe_serialization=True, or choose one that has safetensors"
        )
    raise WeightsMissing(f"its {component.name} has no safetensors weights; copy or download the model again")


def _check_header(file: Path, shown: str) -> None:
    """A safetensors file is a length, a JSON header of that length, and the tensors it announces, to the last byte."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise Refused(f"its file {shown} is not a whole safetensors file")
        header = stream.read(length)
    try:
        tensors = msgspec.json.decode(header, type=dict[str, _Tensor])
    except msgspec.MsgspecError:
        raise Refused(f"its file {shown} has a header that is not safetensors'") from None
    end = max((tensor.data_offsets[1] for tensor in tensors.values()), default=0)
    if 8 + length + end != size:
        raise Refused(
            f"its file {shown} has {size} bytes and should have {8 + length + end}; copy or download it again"
        )


class _Tensor(msgspec.Struct):
    """An entry of the header; `__metadata__` has no offsets."""

    data_offsets: tuple[int, int] = (0, 0)


def _shown(value: object) -> str:
    return repr(value)[:200]
