"""The attacks of tests/tasks/attacks as tasks: an agent's script, and the outcomes it states.

Two lines say them: ``# task: answer   separate: 0   shared: 1 restored`` is the task that is
attacked, and what is given for it where the verifier has a sandbox of its own, and where not: the
reward or the class of the error, and the mode that graded. ``*`` is anything but a reward
of 1, ``?`` is a matter of luck.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.harbor_here import Seen, texts
from support.harbor_rows import TASKS

IMAGE = "small.invalid/python:1"
_STATED = re.compile(r"^# task: (\w+) +separate: (\S+) +shared: (\S+)(?: (\w+))?$", re.MULTILINE)
_ARTIFACT = {"answer": "/app/out/answer.txt", "code": "/app/solution.py", "folder": "/app"}
_PRELOAD = """
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
__attribute__((constructor)) static void enter(void) {
    char name[8] = {0};
    long file = call(2, (long)"/proc/self/comm", 0, 0);
    call(0, file, (long)name, 6);
    if (name[0] == 'p' && name[1] == 'y' && name[2] == 't') call(231, 0, 0, 0);
}
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """An agent's script and what becomes of it, by whether the verifier is separate."""

    name: str
    script: str
    task: str
    separate: str
    shared: str
    shared_mode: str

    def files(self, *, separate: bool) -> dict[str, str]:
        """Return the task with this script as its solution."""
        mode = 'environment_mode = "separate"\n' if separate else ""
        library = {"solution/preload.b64": preload()} if self.name == "ld-so-preload" else {}
        return {
            **texts(TASKS / "attacked" / ("answer" if self.task == "folder" else self.task)),
            "task.toml": f'schema_version = "1.4"\nartifacts = ["{_ARTIFACT[self.task]}"]\n'
            f'[environment]\ndocker_image = "{IMAGE}"\nworkdir = "/app"\n'
            "[agent]\ntimeout_sec = 60\n"
            f"[verifier]\ntimeout_sec = 20\n{mode}",
            "solution/solve.sh": self.script,
            **library,
        }


def attacks() -> dict[str, Attack]:
    """Return all attacks by their names."""
    return {path.stem: read(path) for path in sorted((TASKS / "attacks").glob("*.sh"))}


def read(path: Path) -> Attack:
    """Return an attack; its script must state its outcomes."""
    script = path.read_text()
    stated = _STATED.search(script)
    assert stated is not None, f"{path} states no outcomes"
    task, separate, shared, mode = stated.groups(default="")
    return Attack(path.stem, script, task, separate, shared, mode)


def is_stated(seen: Seen, stated: str) -> bool:
    """Tell whether a trial ended as it was stated."""
    if stated in "*?":
        return stated == "?" or seen.reward is None or seen.reward < 1.0
    if seen.reward is None:
        return seen.error == stated
    return f"{seen.reward:g}" == stated


def table_row(attack: Attack) -> str:
    """Return an attack as docs/reward-hacking.md has it, with its outcome in both places.

    The first line of the script says what it is.
    """
    what = attack.script.splitlines()[1].removeprefix("# ").rstrip(".:")
    what = re.sub(r"\. .*$", "", what)
    apart, inside = (_said(text) for text in (attack.separate, attack.shared))
    mode = f" ({attack.shared_mode})" if attack.shared_mode else ""
    return f"| `{attack.name}` | {what} | {apart} | {inside}{mode} |"


def _said(stated: str) -> str:
    words = {"1": "**1**", "*": "not 1", "?": "0 or **1**"}
    return words.get(stated, stated)


def preload() -> str:
    """Return a library that ends each Python it is loaded into, in base64."""
    compiler = [found] if (found := shutil.which("cc")) else []
    if not compiler and importlib.util.find_spec("ziglang"):
        compiler = [sys.executable, "-m", "ziglang", "cc"]
    with tempfile.TemporaryDirectory() as name:
        library = Path(name, "preload.so")
        flags = ["-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", library]
        subprocess.run([*compiler, *flags], input=_PRELOAD.encode(), check=True)
        return base64.encodebytes(library.read_bytes()).decode()
