"""vLLM's own tests of its NIXL connectors, run plain and with pushscope in place: ``python -m upstream FOLDER``.

FOLDER is the ``tests`` folder of vLLM's source distribution of the installed release; none of it is kept here.
"""
