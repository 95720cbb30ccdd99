"""What virt-handler says in a hook, as KubeVirt publishes it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "kubevirt.hooks.plugins.v1alpha1"
_STREAM = 49152
"""KubeVirt's number for the pair of sockets that carries QEMU's stream."""
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]*")
"""Of objects and nodes: nothing that leads to another directory."""


def request_type() -> Any:
    """The class of a hook's request, by the numbers and types that KubeVirt publishes."""
    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="hooks.proto", package=PACKAGE, syntax="proto3")
    context = file.message_type.add(name="NodeContext")
    context.field.add(name="node_name", number=1, type=of.TYPE_STRING, label=of.LABEL_OPTIONAL)
    request = file.message_type.add(name="ExecuteNodeHookRequest")
    request.field.add(name="hookPoint", number=1, type=of.TYPE_STRING, label=of.LABEL_OPTIONAL)
    request.field.add(name="vmi", number=2, type=of.TYPE_BYTES, label=of.LABEL_OPTIONAL)
    request.field.add(
        name="node_context", number=3, type=of.TYPE_MESSAGE, label=of.LABEL_OPTIONAL,
        type_name=f".{PACKAGE}.NodeContext",
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{PACKAGE}.ExecuteNodeHookRequest")
    return message_factory.GetMessageClass(found)


class RefusedError(Exception):
    """A hook that cannot be carried out: virt-handler logs the words and follows its strategy."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass(frozen=True)
class Move:
    """What a hook's VMI says of its migration."""

    vmi: str
    namespace: str
    migration: str
    target: str
    """The node that it goes to."""
    pods: tuple[str, ...]
    """Its pods on the node of the hook."""

    @classmethod
    def read(cls, text: bytes, node: str) -> Move:
        """Read the VMI that a hook bears.

        Raises:
            RefusedError: it is none, it does not migrate, or it goes to another cluster.
        """
        try:
            vmi = json.loads(text)
            metadata, status = vmi["metadata"], vmi["status"]
            state = status["migrationState"]
            pods = tuple(pod for pod, host in status["activePods"].items() if host == node)
            found = cls(
                metadata["uid"],
                metadata["namespace"],
                state["migrationUid"],
                state["targetNode"],
                pods,
            )
            ends = [state.get(end) or {} for end in ("sourceState", "targetState")]
            others = [end.get("virtualMachineInstanceUID", found.vmi) for end in ends]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            words = f"the hook's VMI does not say how it migrates ({error!r}): pageshare stays out"
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, words) from error
        names = (found.vmi, found.migration, found.namespace, found.target, *found.pods)
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            words = f"the hook's VMI bears a name that is no name: {names}"
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, words)
        if any(other != found.vmi for other in others):
            words = f"VMI {found.vmi} migrates between clusters: pageshare stays out"
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, words)
        return found

    @property
    def stream(self) -> Path:
        """The socket of QEMU's stream, as seen from the directory that launcher and node share."""
        return Path("migrationproxy") / f"{self.vmi}-{_STREAM}-source.sock"
