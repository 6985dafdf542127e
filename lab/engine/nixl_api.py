"""Change NIXL's Python module as soon as it is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Change = Callable[[ModuleType], None]


def when_nixl_loads(change: Change) -> None:
    """Let ``nixl_cu12._api`` (or another flavour) load as ever, then change it. Call it before NIXL is
    imported; several changes may wait for it."""
    sys.meta_path.insert(0, _NixlApiFinder(change))


class _NixlApiFinder(MetaPathFinder):
    def __init__(self, change: Change) -> None:
        self._change = change

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if not (fullname.startswith("nixl_cu") and fullname.endswith("._api")):
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _NixlApiLoader(spec.loader, self._change)
        return spec


class _NixlApiLoader(Loader):
    def __init__(self, inner: Loader, change: Change) -> None:
        self._inner = inner
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._change(module)
