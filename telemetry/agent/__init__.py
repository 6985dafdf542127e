"""``pushscope agent``: reads this host's rings, exports spans, and answers over HTTP.

What the standard variables ask for is in :mod:`.otlp`, the queue before the endpoint in :mod:`.export`, what must not
be done twice after a restart in :mod:`.journal`, from transfers to spans in :mod:`.follow`; :mod:`.process` is the
life of the process.
"""
