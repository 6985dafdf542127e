"""vLLM's NIXL connectors, instrumented: the drop-in that is selected by one more config key.

``--kv-transfer-config '{"kv_connector":"NixlPushConnector","kv_connector_module_path":"pushscope.connector",...}'``

Whatever goes wrong here, at import too, the user gets vLLM's plain connector and one line in the log.
"""

import logging as _logging

try:
    from pushscope.connector.facade import instrumented as _instrumented
except Exception:
    _logging.getLogger("vllm.pushscope").warning(
        "pushscope could not be loaded; serving with vLLM's plain connector", exc_info=True
    )
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import NixlPushConnector
else:
    NixlPushConnector = _instrumented("NixlPushConnector")

__all__ = ["NixlPushConnector"]
