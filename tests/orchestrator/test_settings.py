"""The settings: read from the environment, strictly."""

from pathlib import Path

import pytest

from orchestrator.errors import InvalidOption
from orchestrator.settings import Settings


def test_without_an_environment_all_settings_have_their_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_every_kind_of_value_is_read() -> None:
    settings = Settings.from_env(
        {
            "KARGAH_PORT": "9000",
            "KARGAH_DATA_DIR": "~/pictures",
            "KARGAH_MODELS": "kargah/shapes, /models/mine,",
            "KARGAH_WEBHOOK_RETRY_S": "1,2.5",
            "KARGAH_WEBHOOK_ALLOW_HTTP": "true",
            "KARGAH_WEBHOOK_TIMEOUT_S": "3",
            "PATH": "/usr/bin",
        }
    )
    assert settings.port == 9000
    assert settings.data_dir == Path.home() / "pictures"
    assert settings.models == ("kargah/shapes", "/models/mine")
    assert settings.webhook_retry_s == (1.0, 2.5)
    assert settings.webhook_allow_http is True
    assert settings.webhook_timeout_s == 3.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KARGAH_PORT", "many"),
        ("KARGAH_PORT", ""),
        ("KARGAH_WEBHOOK_ALLOW_HTTP", "perhaps"),
        ("KARGAH_WEBHOOK_RETRY_S", "1,x"),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Settings.from_env({name: text})
    assert refused.value.field == name


def test_an_unknown_name_is_an_error_not_a_silence() -> None:
    with pytest.raises(InvalidOption, match="KARGAH_PROT: is not a setting"):
        Settings.from_env({"KARGAH_PROT": "8000"})
