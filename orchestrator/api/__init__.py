"""The HTTP face of Kargah: generations, their pictures and their events."""

from orchestrator.settings import Settings


def serve(settings: Settings) -> None:
    """Serve the API until SIGTERM or SIGINT."""
    from orchestrator.api.server import serve as run  # here: importing one module of the api is not to load all

    run(settings)
