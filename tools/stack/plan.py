"""What a stack consists of: services, their addresses, their environment, and who must be ready before whom."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from affidavit.libs.runtime import METRICS_OFFSET, PORTS, DataFolder

# Each stage starts together, and is ready before the next one starts.
STAGES: tuple[tuple[str, ...], ...] = (("audit", "preprocess", "ocr"), ("ingress",))


@dataclass(frozen=True)
class ServicePlan:
    """One process to run."""

    name: str  # unique in the stack: "ocr", or "ocr-2" for a second replica
    service: str
    address: str
    metrics_address: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", f"affidavit.services.{self.service}"]


@dataclass(frozen=True)
class StackPlan:
    """All processes, stage by stage."""

    stages: tuple[tuple[ServicePlan, ...], ...]

    @property
    def services(self) -> list[ServicePlan]:
        return [service for stage in self.stages for service in stage]

    @property
    def ingress_address(self) -> str:
        return next(s.address for s in self.services if s.service == "ingress")


def on_ports(base: int, data: DataFolder, replicas: Mapping[str, int] | None = None) -> StackPlan:
    """A stack on loopback TCP: ports as in contracts, moved so that ingress is at `base`; replicas of a service get ports
    100 higher each."""

    def address(service: str, copy: int) -> tuple[str, str]:
        port = base + PORTS[service] - PORTS["ingress"] + 100 * copy
        return f"127.0.0.1:{port}", f"127.0.0.1:{port + METRICS_OFFSET}"

    return _plan(address, data, replicas or {})


def on_sockets(folder: Path, data: DataFolder, only: tuple[str, ...] = ()) -> StackPlan:
    """A private stack on unix sockets in `folder`, without metrics pages; of the services `only`, where given."""
    whole = _plan(lambda service, copy: (f"unix:{folder / service}.sock", ""), data, {})
    if not only:
        return whole
    stages = (tuple(s for s in stage if s.service in only) for stage in whole.stages)
    return StackPlan(tuple(stage for stage in stages if stage))


def _plan(address, data: DataFolder, replicas: Mapping[str, int]) -> StackPlan:  # type: ignore[no-untyped-def]
    peers = {
        service: ",".join(address(service, copy)[0] for copy in range(replicas.get(service, 1)))
        for stage in STAGES
        for service in stage
    }
    cores = len(os.sched_getaffinity(0))

    def plan(service: str, copy: int) -> ServicePlan:
        listen, metrics = address(service, copy)
        environment = {
            f"AFFIDAVIT_{service.upper()}_ADDRESS": listen,
            f"AFFIDAVIT_{service.upper()}_METRICS_ADDRESS": metrics,
            "AFFIDAVIT_HOME": str(data.root),
            # Only ocr computes in an engine; its replicas share the cores.
            "AFFIDAVIT_THREADS": str(max(1, cores // replicas.get("ocr", 1)) if service == "ocr" else 1),
        }
        if service == "ingress":
            environment |= {f"AFFIDAVIT_INGRESS_{p.upper()}": peers[p] for p in peers if p != "ingress"}
        return ServicePlan(service if copy == 0 else f"{service}-{copy + 1}", service, listen, metrics, environment)

    return StackPlan(
        tuple(
            tuple(plan(service, copy) for service in stage for copy in range(replicas.get(service, 1)))
            for stage in STAGES
        )
    )
