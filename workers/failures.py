"""What an error in the inference process means for the job: may it be tried again, and what to say. Imports torch."""

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError

from workers.device import is_out_of_memory
from workers.painter import BadRequest
from workers.pipelines import HubUnreachable
from workers.protocol import FailureKind
from workers.trust import Refused

MAX_MESSAGE_CHARS = 500


def classify(model: str, problem: BaseException) -> tuple[FailureKind, str]:
    """The kind of failure and a sentence. What nobody foresaw is worth another try."""
    kind: FailureKind = "transient"
    text = " ".join(str(problem).split()) or "no details"
    if is_out_of_memory(problem):
        kind = "out_of_memory"
    elif isinstance(problem, Refused):
        kind, text = "poison", f"model {model!r} cannot be used: {text}"
    elif isinstance(problem, SafetensorError | HFValidationError):
        kind, text = "poison", f"model {model!r} cannot be read: {text}"
    elif isinstance(problem, BadRequest):
        kind, text = "poison", f"model {model!r} does not take this request: {text}"
    elif isinstance(problem, HubUnreachable):
        text = f"model {model!r} could not be loaded: {text}"
    else:
        text = f"{type(problem).__name__}: {text}"
    return kind, text[:MAX_MESSAGE_CHARS]
