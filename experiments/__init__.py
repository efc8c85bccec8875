"""The paper as short scripts: ``python -m experiments.NAME --help`` explains each one."""
