"""Engines: what computes a model's outputs, each in one file behind one small protocol.

engine = OnnxRuntimeEngine(model.weights_path, name="rec", threads=1)
outputs = engine.run({"x": batch})          # blocking, without the GIL; any number of threads at once
"""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray


class Engine(Protocol):
    """One loaded model. What an evidence record says of a step comes from these attributes.

    Attributes:
        name: of the engine, "onnxruntime".
        version: of the engine.
        precision: "fp32", "bf16", "int8".
        threads: that one call of `run` uses.
        device: "cpu" or a GPU's UUID.
        metadata: what the weights say of themselves, by key.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The model's outputs, in the card's order. Blocks; releases the GIL; may be called from many threads.

        Raises:
            Exception: the engine's own, when it cannot compute.
        """
        ...


__all__ = ["Engine"]
