"""The programs that run within a box. They use the standard library alone: a box has nothing else."""
