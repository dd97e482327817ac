from .data import Batches, broadcast_data
from .tokens import TokenFile, encode, hold_out

__all__ = ["Batches", "TokenFile", "broadcast_data", "encode", "hold_out"]
