"""The shipped pipeline: loads with no network, draws what it is asked, says nothing about the machine it came from."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch

from workers.builtin import CARD, MODEL_FOLDER
from workers.builtin.judge import judge, look
from workers.builtin.pipeline import load, painter
from workers.builtin.reading import read

# diffusers hands a tensor to numpy in the old way
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

LIMIT_BYTES = 12 * 1024 * 1024


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(CARD.read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("prompt", ["a red circle on a white background", "یک دایره قرمز روی زمینه سفید"])
def test_a_red_circle_on_white_is_one_and_the_same_seed_gives_the_same_bytes(prompt: str) -> None:
    torch.set_num_threads(1)
    paint = painter(MODEL_FOLDER, 12, 2.0)
    first, second = paint([(prompt, 7)]), paint([(prompt, 7)])
    verdict = judge(read(prompt), look(first[0]))
    assert verdict.background
    assert verdict.colour
    assert verdict.shape
    assert verdict.count
    assert np.array_equal(first[0], second[0])


def test_it_is_a_stock_pipeline_without_a_safety_checker() -> None:
    index = json.loads((MODEL_FOLDER / "model_index.json").read_text())
    assert index["_class_name"] == "StableDiffusionPipeline"
    assert index["safety_checker"] == index["feature_extractor"] == [None, None]
    assert index["requires_safety_checker"] is False
    assert load(MODEL_FOLDER).unet.dtype == torch.float32


def test_the_folder_is_small_and_names_no_machine() -> None:
    files = [path for path in MODEL_FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LIMIT_BYTES
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md"}
    for path in files:
        if path.suffix == ".json":
            assert not re.search(r'"(/|[A-Z]:\\)[\w/\\.-]+"', path.read_text(encoding="utf-8")), path


def test_every_suggested_prompt_is_in_the_grammar_and_fits(card: dict[str, Any]) -> None:
    from transformers import CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(MODEL_FOLDER / "tokenizer", local_files_only=True)
    for language in ("en", "fa"):
        assert len(card["prompts"][language]) >= 6
        for prompt in card["prompts"][language]:
            assert read(prompt)
            assert len(tokenizer(prompt).input_ids) <= card["max_prompt_tokens"]


def test_the_card_says_what_the_registry_needs(card: dict[str, Any]) -> None:
    assert card["id"] == "kargah/shapes"
    assert (card["width"], card["height"]) == (128, 128)
    assert 8 <= card["steps"] <= 50
    assert 1.0 < card["guidance_scale"] <= 3.0
    assert card["max_prompt_tokens"] == 32
    assert card["peak_bytes"] < 700 * 2**20
    scheduler = json.loads((MODEL_FOLDER / "scheduler/scheduler_config.json").read_text())
    assert card["scheduler"] == scheduler["_class_name"]
