"""The parts of training keep their promises: plans, steps, checkpoints, exports."""

import json
from pathlib import Path
from random import Random

import pytest
import torch

from workers.builtin import autoencoder, denoiser
from workers.builtin.export import swap, tidy
from workers.builtin.latents import LatentStore, emphasis
from workers.builtin.muon import orthogonalise
from workers.builtin.scenes import UNSEEN_PAIRS, Scene, Thing, draw_seen, is_unseen
from workers.builtin.text import Reader, targets

WEIGHTS = (4.0, 2.0, 4.0)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_training_never_sees_what_is_held_out() -> None:
    random = Random(5)
    for _ in range(2000):
        scene = draw_seen(random, WEIGHTS)
        assert all((thing.colour, thing.shape) not in UNSEEN_PAIRS for thing in scene.things)
        assert not any(is_unseen(thing, scene.background) for thing in scene.things)


def test_an_orthogonalised_step_has_singular_values_near_one() -> None:
    torch.manual_seed(1)
    for shape in [(3, 16, 40), (2, 40, 16)]:
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_things_count_more_than_the_ground() -> None:
    weight = emphasis([Scene("white", (Thing("red", "circle"),), "top left")])[0, 0]
    assert weight[3, 3] > 2 * weight[12, 12]
    assert weight.mean() == pytest.approx(1.0, abs=1e-5)


def test_the_grid_says_what_stands_where() -> None:
    grid, names = targets(Scene("white", (Thing("red", "circle"), Thing("blue", "square")), "left of"))
    assert grid[0] == grid[63] == (8, 8)
    assert grid[3 * 8 + 2] == (0, 0)
    assert grid[3 * 8 + 6] == (4, 1)
    assert len(names) == 8


def test_an_interrupted_run_goes_on_with_the_same_parameters(tmp_path: Path) -> None:
    torch.manual_seed(1)
    store = LatentStore(autoencoder.build(), Random(1), WEIGHTS)
    store.fill(8)
    plan = denoiser.Plan(0.0, 1, tmp_path / "denoiser.pt")
    first = denoiser.Trainer(Reader(), denoiser.build(), store, plan)
    assert first.learn(1.0) > 0.0
    first.save()
    second = denoiser.Trainer(Reader(), denoiser.build(), store, plan)
    second.resume()
    assert second.step == 1
    for name, value in first.modules.state_dict().items():
        assert torch.equal(value, second.modules.state_dict()[name]), name


def test_a_folder_is_swapped_whole(tmp_path: Path) -> None:
    place, new = tmp_path / "model", tmp_path / "new"
    for folder, text in [(place, "old"), (new, "new")]:
        folder.mkdir()
        (folder / "a.txt").write_text(text)
    swap(new, place)
    assert (place / "a.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_configuration_forgets_where_it_was_built(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"_name_or_path": "/somewhere/build", "kept": 1}))
    tidy(path)
    assert json.loads(path.read_text()) == {"_name_or_path": "", "kept": 1}
