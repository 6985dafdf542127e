"""The views of ``pushscope top``, each on a key of its own."""
