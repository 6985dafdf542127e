"""vLLM's NIXL connectors, instrumented: the drop-in that is selected by one more config key.

``--kv-transfer-config '{"kv_connector":"NixlPushConnector","kv_connector_module_path":"pushscope.connector",...}'``

Whatever goes wrong here, at import too, the user gets vLLM's plain connector and one line in the log. The
class is made when vLLM asks for it, so that the parts of this package can be used where vLLM is not.
"""

import importlib
import logging
from typing import Any

_PLAIN = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"

__all__ = ["NixlConnector", "NixlPullConnector", "NixlPushConnector"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        connector = importlib.import_module("pushscope.connector.facade").instrumented(name)
    except Exception:
        logging.getLogger("vllm.pushscope").warning(
            "pushscope could not be loaded; serving with vLLM's plain %s", name, exc_info=True
        )
        connector = getattr(importlib.import_module(_PLAIN), name)
    globals()[name] = connector  # one class, however often it is asked for
    return connector
