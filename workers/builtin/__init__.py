"""The built-in model: a tiny text-to-image pipeline, how it was trained, and how it is measured."""

from pathlib import Path

MODEL_FOLDER = Path(__file__).parent / "model"
CARD = Path(__file__).parent / "card.json"
