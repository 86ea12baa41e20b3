"""What a model card and a bundle card may say. Anything else is refused, with the file and the field."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from affidavit.libs.errors import AffidavitError

Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]{8}\.[0-9]{1,4}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _stays_inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError("must be a relative path without ..")
    return path


RelativePath = Annotated[str, AfterValidator(_stays_inside)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WeightsFile(_Strict):
    """Where a file is: inside an installed package (never imported), or beside the card."""

    package: str = Field("", description="distribution whose installed files hold it; empty: the card's folder")
    path: RelativePath
    sha256: Sha256


class TensorSchema(_Strict):
    name: str
    dtype: Literal["float32", "int64", "int32", "uint8"]
    shape: tuple[int, ...] = Field(description="-1: any")
    range: tuple[float, float] | None = Field(None, description="least and greatest value")
    max_length: int | None = Field(None, description="characters of a text input")


class SoftFailure(_Strict):
    min_confidence: float | None = Field(None, ge=0, le=1)


class HardFailure(_Strict):
    fallback: str = ""


class SilentFailure(_Strict):
    detector: Literal["", "all_zero", "constant", "low_entropy"] = ""


class FailureModes(_Strict):
    soft: SoftFailure
    hard: HardFailure
    silent: SilentFailure


class Hardware(_Strict):
    device: Literal["cpu", "gpu"]
    memory_bytes: int = Field(gt=0)


class Sla(_Strict):
    p95_ms: int = Field(gt=0)
    min_replicas: int = Field(ge=1)
    max_replicas: int = Field(ge=1)


class ModelCard(_Strict):
    """`models/<model_id>/<version>/model.yaml`."""

    model_id: Id
    version: Version
    description: str
    framework: Literal["onnx", "openvino", "tensorrt", "llama.cpp", "torch", "faiss", "linear-head"]
    quantization: Literal["fp32", "bf16", "fp16", "int8", "q4_1"]
    licence: str
    source: str
    trust: Literal["pinned", "signed"]
    files: dict[Literal["weights"], WeightsFile]
    input_schema: tuple[TensorSchema, ...]
    output_schema: tuple[TensorSchema, ...]
    determinism: str = Field(pattern=r"^(bitwise|tolerance: [0-9.e-]+)$")
    failure_modes: FailureModes
    hardware: Hardware
    sla: Sla


class MemberReference(_Strict):
    model_id: Id
    version: Version


class BundleCard(_Strict):
    """`models/bundles/<bundle>/<version>/bundle.yaml`. `rules` belong to the pipeline, which checks them itself."""

    bundle: Id
    version: Version
    description: str
    engine: Literal["onnxruntime", "openvino", "tensorrt", "llama.cpp", "torch"]
    precision: Literal["fp32", "bf16", "fp16", "int8"]
    preprocess: str = Field(description="version of the preprocessing that the thresholds were measured with")
    models: dict[str, MemberReference] = Field(min_length=1, description="by role in the pipeline")
    rules: dict[str, Any]


Card = TypeVar("Card", bound=BaseModel)


def parse(model: type[Card], content: Any, where: str) -> Card:
    """`content` as `model`.

    Raises:
        AffidavitError: MODEL_UNVERIFIED with `where` (a file) and each field that does not fit.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'card'}: {e['msg']}" for e in error.errors())
        raise AffidavitError("MODEL_UNVERIFIED", f"{where}: {faults}") from None


def read(model: type[Card], path: Path) -> tuple[Card, bytes]:
    """A card and the bytes that it was read from.

    Scalars are read as text and typed by the card's fields: `20261130.1` stays a version and `no` a word.

    Raises:
        AffidavitError: MODEL_UNVERIFIED, naming the file and what is wrong with it.
    """
    try:
        data = path.read_bytes()
        # BaseLoader builds nothing but text, lists and mappings.
        content: Any = yaml.load(data, Loader=yaml.BaseLoader)
    except OSError as error:
        raise AffidavitError("MODEL_UNVERIFIED", f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise AffidavitError("MODEL_UNVERIFIED", f"{path}: not YAML: {error}") from None
    return parse(model, content, str(path)), data
