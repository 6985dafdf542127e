"""The screens of ``pushscope top``: they draw snapshots and know nothing else."""
