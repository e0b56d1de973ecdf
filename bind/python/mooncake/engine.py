# SPDX-License-Identifier: Apache-2.0
"""Transfers between memory of processes, as engines call them."""
import enum as _enum

from mooncake._rpc import (
    ReceivedData,
    ReceivedTensor,
    RpcInterface,
    create_rpc_client,
    create_rpc_server,
)
from mooncake.shared_segment import RawSegment as SharedSegment
from yuebing import _native
from yuebing._native import InnerTransferEngine

CoroRPCInterface = RpcInterface

__all__ = [
    "CoroRPCInterface",
    "InnerTransferEngine",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "SharedSegment",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "create_rpc_client",
    "create_rpc_server",
]

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False


class TransferOpcode(_enum.IntEnum):
    Read = 0
    Write = 1


Read = TransferOpcode.Read
Write = TransferOpcode.Write


class TransferNotify:
    """A word to the peer, delivered after the data."""

    __slots__ = ("name", "msg")

    def __init__(self, name="", msg=""):
        self.name = name
        self.msg = msg

    def __repr__(self):
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


class TransferEngine(_native.Engine):
    """Registers memory and moves bytes to and from that of peers, named "host:port"."""

    TransferOpcode = TransferOpcode

    def get_notifies(self):
        """The notifications that arrived; they are given once."""
        return [TransferNotify(name, msg) for name, msg in self._take_notifies()]

    def warmup_efa_segment(self, segment_name):
        """0: there is nothing to warm up."""
        return 0
