"""``pushscope doctor``: what stands in the way of seeing transfers on this host, and of having any.

Facts are gathered first (:mod:`.gather`), what needs vLLM or NIXL by processes of their own
(:mod:`.child`); checks are pure functions of the facts (:mod:`.checks`, :mod:`.engine_checks`);
:mod:`.view` draws them.
"""
