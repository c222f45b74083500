"""`python -m orchestrator.cli`: the same as `kargah`."""

from orchestrator.cli import main

if __name__ == "__main__":
    main()
