"""The offered models: where they are found and what is known of them without loading any."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InvalidOption
from orchestrator.models import BUILT_IN, load_cards, offered_models
from orchestrator.settings import Settings


def offer(*models: str) -> Settings:
    return Settings(models=models)


def write_folder(folder: Path, card: dict[str, Any] | None = None, **configs: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "model_index.json").write_text("{}")
    for part, config in configs.items():
        (folder / part).mkdir()
        name = "tokenizer_config.json" if part == "tokenizer" else "config.json"
        (folder / part / name).write_text(json.dumps(config))
    if card is not None:
        (folder / "card.json").write_text(json.dumps(card))
    return folder


def test_the_built_in_model_is_offered_by_default_with_its_own_card() -> None:
    (model,) = offered_models(Settings())
    assert model.source == "built-in"
    assert model.card.id == BUILT_IN
    assert (model.card.width, model.card.height) == (128, 128)
    assert model.card.prompts["en"]
    assert Path(model.location).parts[-3:] == ("workers", "builtin", "model")


def test_a_folder_has_the_defaults_its_configuration_says(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "mine",
        unet={"sample_size": 96},
        vae={"block_out_channels": [128, 256, 512, 512]},
        tokenizer={"model_max_length": 77},
    )
    (model,) = offered_models(offer(str(folder)))
    assert (model.source, model.location) == ("folder", str(folder))
    card = model.card
    assert (card.id, card.width, card.height, card.max_prompt_tokens) == ("mine", 768, 768, 77)
    assert (card.steps, card.guidance_scale) == (30, 7.5)


def test_a_folder_without_configurations_has_the_usual_defaults(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "bare", tokenizer={"model_max_length": 10**30}, vae={}, unet={"sample_size": None})
    (card,) = load_cards(offer(str(folder)))
    assert (card.width, card.steps, card.max_prompt_tokens) == (512, 30, None)


def test_a_card_in_the_folder_has_the_last_word(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "mine", {"id": "me/mine", "steps": 4, "unknown": 1}, transformer={"sample_size": 64}
    )
    (card,) = load_cards(offer(str(folder)))
    assert (card.id, card.steps) == ("me/mine", 4)


@pytest.mark.parametrize(
    ("name", "size", "steps", "guidance"),
    [
        ("runwayml/stable-diffusion-v1-5", 512, 30, 7.5),
        ("stabilityai/stable-diffusion-xl-base-1.0", 1024, 30, 5.0),
        ("stabilityai/sdxl-turbo", 512, 2, 0.0),
        ("stabilityai/stable-diffusion-3.5-large", 1024, 28, 5.0),
        ("black-forest-labs/FLUX.1-schnell", 1024, 4, 0.0),
        ("black-forest-labs/FLUX.1-dev", 1024, 28, 3.5),
        ("somebody/something", 512, 30, 7.5),
    ],
)
def test_a_hub_id_has_the_defaults_of_its_family(name: str, size: int, steps: int, guidance: float) -> None:
    (model,) = offered_models(offer(name))
    card = model.card
    assert (model.source, model.location, card.id) == ("hub", name, name)
    assert (card.width, card.height, card.steps, card.guidance_scale) == (size, size, steps, guidance)


def test_the_order_of_the_settings_is_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine")
    assert [card.id for card in load_cards(offer("a/b", str(folder), BUILT_IN))] == ["a/b", "mine", BUILT_IN]


@pytest.mark.parametrize(
    "name", ["model", "a/b/c", "../x", "/", "", "a b/c", "http://x/y", "-a/b", "a/..", "/no/such/folder"]
)
def test_a_name_that_is_no_model_is_a_clear_error(name: str) -> None:
    with pytest.raises(InvalidOption, match="KARGAH_MODELS: "):
        offered_models(offer(name))


def test_no_model_at_all_is_a_clear_error() -> None:
    with pytest.raises(InvalidOption, match="names no model"):
        offered_models(offer())


def test_two_models_of_one_name_are_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    folders = [write_folder(tmp_path / "same"), write_folder(tmp_path / "x" / "same")]
    with pytest.raises(InvalidOption, match="has two models called 'same'"):
        offered_models(offer(*map(str, folders)))


@pytest.mark.parametrize("text", ["[]", "{", '{"steps": "many"}', '{"prompts": {"en": [1]}}', "x" * 2_000_000])
def test_a_card_that_cannot_be_read_names_its_file(tmp_path: Path, text: str) -> None:
    folder = write_folder(tmp_path / "mine")
    (folder / "card.json").write_text(text)
    with pytest.raises(InvalidOption, match=r"card\.json"):
        offered_models(offer(str(folder)))
