from typing import Any

from mooncake.store import MooncakeDistributedStore

class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    def __getattr__(self, name: str) -> Any: ...
