"""Events in, transfers out: everything pushscope knows, derived from one stream. Never imports vLLM or NIXL."""
