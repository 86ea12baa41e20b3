"""ONNX Runtime on the CPU, set up for the same bits every time and for memory that comes back."""

from collections.abc import Mapping
from typing import Any, cast

import onnxruntime
from numpy.typing import NDArray
from prometheus_client import Counter

calls = Counter("affidavit_engine_calls_total", "Calls of an engine", ["model"])


class OnnxRuntimeEngine:
    """One session. With `threads` 1, a call runs in its caller's thread alone, so several threads can share a session.

    Determinism, measured on PP-OCRv6 (ONNX Runtime 1.32, AVX-512): rows of a batch do not see each other; a row has the
    same bits in every batch of 2 and more, and other bits (2e-6) in a batch of 1, where matrix products become vector
    products. Bits also change with `threads` for some widths, so a deployment keeps its number.
    """

    name = "onnxruntime"
    version: str = onnxruntime.__version__
    precision = "fp32"
    device = "cpu"

    def __init__(self, weights_path: str, *, model: str, threads: int = 1) -> None:
        """`weights_path` is read once, here; `/proc/self/fd/N` of a sealed memory file will do."""
        self.threads = threads
        options = onnxruntime.SessionOptions()
        # An arena keeps the largest sum of every shape seen, and a memory pattern is kept for each shape.
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.use_deterministic_compute = True
        # A spinning pool takes a core from the other engines of this machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(weights_path, options, providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self._calls = calls.labels(model)

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        self._calls.inc()
        return cast("list[NDArray[Any]]", self._session.run(self._outputs, dict(inputs)))
