"""What can go wrong. The text of each exception is that of the command."""


class Error(Exception):
    """Any failure of margay. It is raised as one of its subclasses."""


class RunError(Error, RuntimeError):
    """A run failed, or a result could not be written: exit code 1 of the command."""


class UsageError(Error, ValueError):
    """An unknown name or an impossible value: exit code 2 of the command."""


class InputError(Error, OSError):
    """An input cannot be read or is damaged: exit code 3 of the command."""


class PolicyError(RunError):
    """A policy in Python answered what it must not. What a policy raises itself comes out of the call as it is."""
