# SPDX-License-Identifier: Apache-2.0
"""Whether the package `mooncake` of an environment is ours alone.

Another distribution may bring a package of that name (mooncake-transfer-engine and its variants).
Two in one folder overwrite each other's files, and which extension module is then loaded is left to
chance: an engine would run on a mixture. So what is not ours is found by name and refused.
"""
import os
import re

_OURS = frozenset("""
    __init__.py __init__.pyi __pycache__ _engram.py _http.py _ours _parallel.py _rpc.py _tensors.py
    async_store.py async_store.pyi buffer_pool.py buffer_pool.pyi engine.py engine.pyi
    mooncake_config.py mooncake_config.pyi py.typed shared_segment.py shared_segment.pyi store.py
    store.pyi
""".split())
_FOREIGN_DISTRIBUTION = re.compile(r"mooncake[-_.].*\.(dist|egg)-info$", re.I)


class Found:
    """What a folder with a package `mooncake` holds."""

    def __init__(self, folder, ours, strangers, distributions):
        self.folder = folder
        self.ours = ours  # It has our mark.
        self.strangers = strangers  # Files of somebody else within it.
        self.distributions = distributions  # Metadata beside it that names another.

    @property
    def alone(self):
        return self.ours and not self.strangers and not self.distributions

    def why(self):
        if not self.ours:
            said = f"{self.folder} is not yuebing's package"
        elif self.strangers:
            said = f"{self.folder} also holds files of another distribution: " + \
                ", ".join(self.strangers[:5])
        else:
            said = f"another distribution with a package of that name is installed beside " \
                f"{self.folder}"
        names = [n.split("-")[0].replace("_", "-") for n in self.distributions]
        name = names[0] if names else "mooncake-transfer-engine"
        return f"{said}. Remedy: pip uninstall -y {name} && " \
            "pip install --force-reinstall --no-deps yuebing"


def look(folder):
    """Look at a package's folder."""
    try:
        inside = set(os.listdir(folder))
        beside = os.listdir(os.path.dirname(folder))
    except OSError:
        inside, beside = set(), []
    strangers = sorted(n for n in inside if n not in _OURS)
    return Found(folder, "_ours" in inside, strangers,
                 sorted(n for n in beside if _FOREIGN_DISTRIBUTION.match(n)))


def refuse(folder):
    """Raise ImportError unless the package there is ours alone."""
    found = look(folder)
    if not found.alone:
        raise ImportError(f"yuebing: the package mooncake is not usable: {found.why()}")
