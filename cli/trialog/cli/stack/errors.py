"""What can go wrong with the embedded stack.

```
StackError
├── MachineUnfit          the machine or the environment lacks something
├── StackInUse            another process runs a stack on the same folder
├── BadStackOptions       options that cannot be started
├── ProcessNotReady       a process died or stayed silent while starting
└── UnknownProcess        a name that no process of the stack has
```
"""


class StackError(Exception):
    """The embedded stack cannot do what was asked; the message says why and what helps."""


class MachineUnfit(StackError):
    """The machine or the environment lacks something that the stack needs."""


class StackInUse(StackError):
    """Another process runs a stack on this folder."""


class BadStackOptions(StackError):
    """The options contradict one another or are out of range."""


class ProcessNotReady(StackError):
    """A process died while it started, or did not become ready in time."""


class UnknownProcess(StackError):
    """No process of the stack has this name."""
